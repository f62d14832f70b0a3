"""A user of the cluster: ``ralph-wrap fleet`` with kubectl, on the machine of the control plane."""

from __future__ import annotations

import json
import os
import resource
import time
from typing import TYPE_CHECKING, Any

from tests.kubernetes import needs
from tests.kubernetes.images import FLEET
from tests.kubernetes.run import Run, agent_variables, pod_fields, prepare
from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.machine import Daemon
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo

_ENVIRONMENT = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
_SECRET = "agent"  # noqa: S105 - the name of one


class User:
    """A user with a project whose remote ``origin`` is on the git server.

    Arguments:
        lines: that each session of the user writes.
        pause: seconds between two lines.
        keys: further ones of ``.ralph/fleet.yaml``.
        more: as :func:`agent_variables` has it.

    """

    def __init__(
        self,
        cluster: Cluster,
        remote: Remote,
        project: Repo,
        *,
        lines: int,
        pause: float,
        keys: Mapping[str, Any] | None = None,
        **more: int,
    ) -> None:
        self._cluster = cluster
        self._remote = remote
        self._lines = lines
        self.project = project
        prepare(project)
        project.git("config", "user.name", "Ada")
        project.git("config", "user.email", "ada@example.invalid")
        project.git("remote", "add", "origin", remote.address)
        project.git("push", "--quiet", remote.path, "HEAD:main")
        variables = agent_variables(lines, pause, **more)
        config = _config(variables.pop("AGENT_LINES")) | dict(keys or {})
        project.write(".ralph/fleet.yaml", json.dumps(config))
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SECRET},
            "stringData": variables,
        }
        cluster.control.kubectl("apply", "-f", "-", text=json.dumps(secret | {"stringData": variables}))

    def fleet(self, *arguments: str) -> str:
        """Run a command of the group, which must succeed, and return what it printed."""
        return self._cluster.hub.call(*self._command(*arguments), limit=180)

    def follow(self, run: Run, index: int) -> Daemon:
        """Start ``fleet logs --follow``, and return it; its file has what it prints."""
        return self._cluster.hub.start("logs", *self._command("logs", "--follow", run.name, str(index)))

    def _command(self, *arguments: str) -> list[str]:
        variables = {name: os.environ[name] for name in _ENVIRONMENT}
        variables["KUBECONFIG"] = str(self._cluster.control.kubeconfig)
        variables["PATH"] = f"{needs.directory()}:{os.environ['PATH']}"
        variables["RALPH_TRUST"] = "1"
        words = [f"{name}={value}" for name, value in variables.items()]
        return ["env", f"--chdir={self.project.path}", *words, PROGRAM, "fleet", *arguments]

    def run(self, *arguments: str, size: int) -> Run:
        """Start a run, and return it."""
        name = self.fleet("run", *arguments).strip()
        job = f"ralph-{name}"
        return Run(self._cluster, self._remote, name, job, size=size, lines=self._lines)

    def rows(self, run: Run) -> list[dict[str, Any]]:
        """Return what ``fleet ps`` lists."""
        rows: list[dict[str, Any]] = json.loads(self.fleet("ps", run.name, "--json"))["data"]
        return rows

    def timed_rows(self, run: Run) -> tuple[list[dict[str, Any]], float, float]:
        """Return the same, with the seconds of processor time of all processes, and those by the clock."""
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        rows = self.rows(run)
        after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return rows, processor, ended - begun


def _config(lines: str) -> dict[str, Any]:
    """Return the content of ``.ralph/fleet.yaml``; JSON is YAML."""
    return {
        "image": FLEET,
        "secrets": [_SECRET],
        "env": {"AGENT_LINES": lines},
        "pod": pod_fields(),
        "stagger": 0,
        "grace": "60s",
    }
