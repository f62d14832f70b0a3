"""A run whose spec the test pushes itself: many of them have one project, each with a remote of its own."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet.kubernetes.cluster import ClusterConfig
from ralph_wrap.interfaces.fleet.kubernetes.job import job_manifest, job_name
from ralph_wrap.interfaces.fleet.refs import spec_ref
from ralph_wrap.interfaces.fleet.spec import FleetSpec, write_spec
from tests.kubernetes.images import FLEET
from tests.kubernetes.run import Run, agent_variables, pod_fields, prepare

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo


class SeededRun(Run):
    """A run with the Job that ``fleet run`` creates; a secret with its name has the variables of the agent.

    Arguments:
        project: of the user; its directory is the only way to the remote.
        pause: seconds between two lines.
        more: as :func:`agent_variables` has it.

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
        **more: int,
    ) -> None:
        name = f"run-{os.urandom(4).hex()}"
        super().__init__(cluster, remote, name, job_name(name), size=size, lines=lines)
        self._variables = agent_variables(lines, pause, **more)
        self._second: list[str] = []
        options = {"max_iterations": "5"}
        self._spec = FleetSpec(name, size, options, ("numbered-lines",), parallel=size)
        self._commit = self._push(project)

    def _push(self, project: Repo) -> str:
        prepare(project)
        git = Git(project.path, git_environment(os.environ))
        commit = write_spec(git, self._spec, project.head)
        project.git("push", "--quiet", self.remote.path, "HEAD:main", f"{commit}:{spec_ref(self.name)}")
        return commit

    def start(self, **limits: str) -> None:
        """Start the Job, with *limits* of its container besides."""
        config = ClusterConfig(
            FLEET, secrets=(self.name,), grace=60, node_timeout=2, pod=pod_fields(**limits)
        )
        job = job_manifest(config, self._spec, self._commit, self.remote.address)
        data = {name: base64.b64encode(text.encode()).decode() for name, text in self._variables.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}, "data": data}
        self.cluster.control.kubectl("apply", "-f", "-", text=f"{json.dumps(secret)}\n---\n{json.dumps(job)}")

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
            self.cluster.control.kubectl("delete", "pod", name, "--ignore-not-found")
        self.cluster.control.kubectl("delete", "job", self.job, "--ignore-not-found")
        self.cluster.control.kubectl("delete", "secret", self.name, "--ignore-not-found")
