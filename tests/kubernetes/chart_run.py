"""A run that a user has started by hand: a spec on the remote, and the Job of the chart."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet.refs import spec_ref
from ralph_wrap.interfaces.fleet.spec import FleetSpec, write_spec
from tests.kubernetes.charts import render_chart
from tests.kubernetes.images import FLEET
from tests.kubernetes.run import Run, agent_variables, prepare

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo


class ChartRun(Run):
    """A run of the chart; its Job, and the secret with the variables of the agent, have the name of the run.

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
        super().__init__(cluster, remote, name, name, size=size, lines=lines)
        self._variables = agent_variables(lines, pause, **more)
        self._second: list[str] = []
        self.spec = self._begin(project)

    def _begin(self, project: Repo) -> str:
        prepare(project)
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
        job = render_chart(self.name, {**ours, **order, **size, **values})
        self.cluster.control.kubectl("apply", "-f", "-", text=f"{json.dumps(secret)}\n---\n{job}")

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
        self.cluster.control.kubectl("delete", "job,networkpolicy,secret", self.name, "--ignore-not-found")
