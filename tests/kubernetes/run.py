"""A run of a fleet on the cluster: a Job of the chart, and what its agents have written."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

from ralph_wrap.fleet.refs import index_ref, spec_ref
from ralph_wrap.fleet.spec import FleetSpec, write_spec
from ralph_wrap.git import Git, git_environment
from tests.kubernetes import git_server
from tests.kubernetes.charts import render_chart
from tests.kubernetes.control_plane import ADDRESS
from tests.kubernetes.images import FLEET
from tests.support.repo import Repo
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote

LIMIT = 300.0
"""Seconds for what takes 30 on an idle machine."""
BEAT = 2
"""Seconds between two pushes of a session while its agent works."""


class Run:
    """Sessions of the agent ``numbered-lines``, one for each index of a Job.

    Arguments:
        project: of the user; its directory is the only way to the remote.
        lines: that each session writes.
        pause: seconds between two lines.

    Attributes:
        name: of the run, of its Job, and of the secret with the variables of the agent

    """

    def __init__(
        self,
        cluster: Cluster,
        remote: Remote,
        project: Repo,
        *,
        size: int = 1,
        lines: int = 10,
        pause: float = 1,
    ) -> None:
        self.cluster = cluster
        self.remote = remote
        self.name = f"run-{os.urandom(4).hex()}"
        self.size = size
        self.lines = lines
        self._variables = {
            "AGENT_LINES": str(lines),
            "AGENT_PAUSE": str(pause),
            "AGENT_JOURNAL": f"{ADDRESS}/{git_server.JOURNAL_PORT}",
        }
        self._second: list[str] = []
        self.spec = self._begin(project)

    def _begin(self, project: Repo) -> str:
        project.write(".gitignore", ".ralph/run/\n.ralph/worktrees/\n")
        project.write(".ralph/config.toml", f'remote_beat = "{BEAT}s"\n')
        project.commit("a project for a fleet")
        git = Git(project.path, git_environment(os.environ))
        options = {"max_iterations": "5"}
        spec = FleetSpec(run=self.name, size=self.size, options=options, command=("numbered-lines",))
        commit = write_spec(git, spec, project.head)
        project.git("push", "--quiet", self.remote.path, "HEAD:main", f"{commit}:{spec_ref(self.name)}")
        return commit

    def start(self, **values: Any) -> None:
        """Start the Job, with *values* of the chart besides."""
        resources = {"requests": {"cpu": "10m"}, "limits": {"memory": "512Mi"}}
        ours = {"image": FLEET, "imagePullPolicy": "Never", "gitSecret": "", "agentSecret": self.name}
        order = {"remote": self.remote.address, "run": self.name, "spec": self.spec}
        size = {"count": self.size, "parallel": self.size, "resources": resources, "nodeGrace": 2}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in self._variables.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}, "data": data}
        self.cluster.control.kubectl("apply", "-f", "-", text=json.dumps(secret))
        self.cluster.control.kubectl(
            "apply", "-f", "-", text=render_chart(self.name, {**ours, **order, **size, **values})
        )

    def pods(self) -> list[Any]:
        """Return the pods of the Job that run and do not end."""
        pods = self.cluster.control.get("pods", f"--selector=job-name={self.name}")["items"]
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return [pod for pod in running if "deletionTimestamp" not in pod["metadata"]]

    def state(self, index: int) -> dict[str, Any]:
        """Return the state of an index on the remote; empty before a worker has claimed it."""
        ref = index_ref(self.name, index)
        if ref not in self.remote.refs(ref):
            return {}
        return dict(json.loads(self.remote.git("cat-file", "blob", ref)))

    def agent_id(self, index: int) -> str:
        """Return the id of the session of an index, which has one."""
        return str(eventually(lambda: self.state(index).get("id"), f"index {index} to be claimed", LIMIT))

    def written(self, index: int) -> list[tuple[int, str]]:
        """Return number and pod address of each line that the agent of an index has reported."""
        journal = (self.remote.path.parent / "journal").read_text().splitlines()
        rows = [line.split(" ") for line in journal]
        mine = self.agent_id(index)
        return [(int(number), pod) for agent_id, number, pod in rows if agent_id == mine]

    def wait_for_line(self, index: int, number: int) -> None:
        """Wait until the agent of an index has written the line with this number."""

        def has_it() -> bool:
            return any(found >= number for found, _ in self.written(index))

        eventually(has_it, f"line {number} of index {index}", LIMIT)

    def wait_until_done(self) -> None:
        """Wait until the Job is complete."""

        def complete() -> bool:
            return bool(self.cluster.control.get("job", self.name)["status"].get("succeeded") == self.size)

        eventually(complete, f"the Job {self.name} to be complete", 2 * LIMIT)

    def lines_of(self, revision: str) -> list[tuple[int, str]]:
        """Return number and pod address of each line in ``work.txt`` of a commit."""
        rows = [line.split(" ") for line in self.remote.git("show", f"{revision}:work.txt").splitlines()]
        return [(int(number), pod) for number, pod in rows]

    def has_lines(self, revision: str) -> bool:
        """Return whether there is a ``work.txt`` in it, which a blob does not have."""
        name = f"{revision}:work.txt"
        return self.remote.attempt("cat-file", "-e", name)

    def start_second_pod(self, pod: Any, *, index: int) -> str:
        """Start a pod of an index that the Job knows nothing of, and return its name."""
        name = f"{self.name}-second"
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        spec["containers"][0]["env"].append({"name": "RALPH_FLEET_INDEX", "value": str(index)})
        copy = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self._second.append(name)
        self.cluster.control.kubectl("apply", "-f", "-", text=json.dumps(copy))
        return name

    def end(self) -> None:
        """Delete the Job and what belongs to it."""
        for name in self._second:
            self.cluster.control.kubectl("delete", "pod", name)
        self.cluster.control.kubectl("delete", "job,networkpolicy,secret", self.name, "--ignore-not-found")
