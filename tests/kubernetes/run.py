"""A run of a fleet on the cluster, and what its agents have written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ralph_wrap.interfaces.fleet.kubernetes.job import CONTAINER
from ralph_wrap.interfaces.fleet.refs import index_ref, output_ref
from tests.kubernetes import git_server
from tests.kubernetes.control_plane import ADDRESS
from tests.kubernetes.gate import address_of_gate
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo

LIMIT = 300.0
"""Seconds for what takes 30 on an idle machine."""
BEAT = 2
"""Seconds between two pushes of a session while its agent works."""


def prepare(project: Repo) -> None:
    """Make a project whose sessions push often."""
    project.write(".gitignore", ".ralph/run/\n.ralph/worktrees/\n.ralph/fleet.yaml\n")
    project.write(".ralph/config.toml", f'remote_beat = "{BEAT}s"\n')
    project.commit("a project for a fleet")


def agent_variables(lines: int, pause: float, *, gate: int = 0, **more: int) -> dict[str, str]:
    """Return what the agent ``numbered-lines`` has in its environment.

    Arguments:
        pause: seconds between two lines.
        gate: the number of the gate at which it waits.
        more: numbers of lines by what happens there: ``hold``, ``eats`` or ``fills``.

    """
    return {
        **{f"AGENT_{name.upper()}": str(line) for name, line in more.items()},
        "AGENT_GATE": address_of_gate(gate),
        "AGENT_LINES": str(lines),
        "AGENT_PAUSE": str(pause),
        "AGENT_JOURNAL": f"{ADDRESS}/{git_server.JOURNAL_PORT}",
    }


def pod_fields(**limits: str) -> dict[str, Any]:
    """Return what every pod of the tests has besides, as the key ``pod`` of ``.ralph/fleet.yaml``.

    Arguments:
        limits: of the container, besides that of the memory.

    """
    resources = {"requests": {"cpu": "10m"}, "limits": {"memory": "512Mi"} | limits}
    return {"containers": [{"name": CONTAINER, "imagePullPolicy": "Never", "resources": resources}]}


class Run:
    """Sessions of the agent ``numbered-lines``, one for each index of a Job.

    Arguments:
        name: of the run.
        job: the name of its Job.
        lines: that each session writes.

    """

    def __init__(
        self, cluster: Cluster, remote: Remote, name: str, job: str, *, size: int, lines: int
    ) -> None:
        self.cluster = cluster
        self.remote = remote
        self.name = name
        self.job = job
        self.size = size
        self.lines = lines
        self._agent_ids: dict[int, str] = {}

    def every_pod(self) -> list[Any]:
        """Return the pods of the Job."""
        found: list[Any] = self.cluster.control.get("pods", f"--selector=job-name={self.job}")["items"]
        return found

    def pods(self) -> list[Any]:
        """Return the pods of the Job that run and do not end."""
        running = [pod for pod in self.every_pod() if pod["status"].get("phase") == "Running"]
        return [pod for pod in running if "deletionTimestamp" not in pod["metadata"]]

    def state(self, index: int) -> dict[str, Any]:
        """Return the state of an index on the remote; empty before a worker has claimed it."""
        ref = index_ref(self.name, index)
        if not (self.remote.path / ref).exists():  # a process of git for each look would take a processor
            return {}
        return dict(json.loads(self.remote.git("cat-file", "blob", ref)))

    def claim(self, index: int) -> dict[str, Any]:
        """Return the claim on the session of an index."""
        return dict(
            json.loads(self.remote.git("cat-file", "blob", f"refs/ralph/claims/{self.agent_id(index)}"))
        )

    def output(self, index: int) -> str:
        """Return what the workers of an index have printed, as far as they have ended."""
        return self.remote.git("log", "--format=", "--patch", output_ref(self.name, index))

    def agent_id(self, index: int) -> str:
        """Return the id of the session of an index, which has one."""
        if index not in self._agent_ids:
            found = eventually(lambda: self.state(index).get("id"), f"index {index} to be claimed", LIMIT)
            self._agent_ids[index] = str(found)
        return self._agent_ids[index]

    def written(self, index: int) -> list[tuple[int, str]]:
        """Return number and pod address of each line that the agent of an index has reported."""
        journal = (self.remote.path.parent / "journal").read_text().splitlines()
        mine = self.agent_id(index)
        rows = [line.split(" ") for line in journal if line.startswith(mine)]
        return [(int(number), pod) for _, number, pod in rows]

    def wait_for_line(self, index: int, number: int) -> None:
        """Wait until the agent of an index has written the line with this number."""

        def has_it() -> bool:
            return any(found >= number for found, _ in self.written(index))

        eventually(has_it, f"line {number} of index {index}", LIMIT)

    def wait_until_done(self) -> None:
        """Wait until the Job is complete."""
        self._wait_for("succeeded", self.size)

    def wait_for_a_replacement(self) -> None:
        """Wait until one pod ends and another one has started."""
        self._wait_for("terminating", 1)
        self._wait_for("ready", 1)

    def _wait_for(self, field: str, count: int) -> None:
        """Wait until the status of the Job has this count."""
        # A look each 50 ms would take a processor; the API server may go away while kubectl waits.
        state = f"--for=jsonpath={{.status.{field}}}={count}"
        wait = ("wait", state, f"job/{self.job}", "--timeout=60s")
        eventually(
            lambda: self.cluster.control.attempt(*wait), f"{count} {field} of the Job {self.job}", 2 * LIMIT
        )

    def lines_of(self, revision: str) -> list[tuple[int, str]]:
        """Return number and pod address of each line in ``work.txt`` of a commit."""
        rows = [line.split(" ") for line in self.remote.git("show", f"{revision}:work.txt").splitlines()]
        return [(int(number), pod) for number, pod in rows]

    def has_lines(self, revision: str) -> bool:
        """Return whether there is a ``work.txt`` in it, which a blob does not have."""
        name = f"{revision}:work.txt"
        return self.remote.attempt("cat-file", "-e", name)
