"""The user's own ``kubectl``: it has their login, and is lighter than a client library (measured)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralph_wrap.errors import NotFoundError, RalphError
from ralph_wrap.interfaces.fleet.kubernetes.cluster import ClusterConfig
from ralph_wrap.interfaces.fleet.kubernetes.job import job_name
from ralph_wrap.system.document import from_json
from ralph_wrap.system.process import RunningCommand
from ralph_wrap.system.text import plain

_PATIENCE = 60.0  # seconds
_GRACES = 3600.0  # seconds until pods have ended; their grace is the choice of the user
_REQUEST = "--request-timeout=30s"


class Kubectl:
    """``kubectl`` for the cluster and the namespace that the user has configured.

    Arguments:
        config: what ``.ralph/fleet.yaml`` says.
        environ: the environment.

    """

    def __init__(self, config: ClusterConfig, environ: Mapping[str, str]) -> None:
        words = {"--context": config.context, "--namespace": config.namespace}
        self._words = [word for name, value in words.items() if value for word in (name, value)]
        self._environ = environ

    def command(self, *arguments: str) -> list[str]:
        """Return a whole command line."""
        return ["kubectl", *self._words, *arguments]

    def create(self, manifest: bytes) -> None:
        """Create the object of a manifest.

        Raises:
            RalphError: the cluster refuses it, or does not answer.

        """
        self._run("create", _REQUEST, "-f", "-", stdin=manifest)

    def job(self, run: str) -> dict[str, Any] | None:
        """Return the Job of a run; ``None`` if there is none.

        Raises:
            RalphError: the cluster does not answer.

        """
        arguments = ("get", "job", job_name(run), _REQUEST, "--ignore-not-found", "-o", "json")
        if not (answer := self._run(*arguments).strip()):
            return None
        try:
            found = from_json(answer)
        except ValueError as error:
            raise RalphError(f"kubectl get job printed no JSON: {error}") from None
        return found if isinstance(found, dict) else None

    def suspend(self, run: str, *, yes: bool) -> None:
        """Suspend the Job of a run, or let it go on; errors are those of :meth:`create`."""
        patch = '{"spec": {"suspend": %s}}' % ("true" if yes else "false")
        self._run("patch", "job", job_name(run), _REQUEST, "--type", "merge", "-p", patch)

    def delete(self, run: str) -> None:
        """Delete the Job of a run after its pods have ended; errors are those of :meth:`create`."""
        arguments = ("--cascade=foreground", "--ignore-not-found", "--wait=true")
        self._run("delete", "job", job_name(run), *arguments, patience=_GRACES)

    def logs_command(self, run: str, index: int) -> list[str]:
        """Return the command line that follows the newest pod of an index."""
        labels = f"job-name={job_name(run)},batch.kubernetes.io/job-completion-index={index}"
        return self.command("logs", "--follow", "--tail=-1", "--selector", labels)

    def _run(self, *arguments: str, stdin: bytes | None = None, patience: float = _PATIENCE) -> bytes:
        try:
            command = RunningCommand(
                self.command(*arguments), cwd=Path.cwd(), env=self._environ, stdin=stdin, with_terminal=True
            )
        except FileNotFoundError:
            raise NotFoundError(
                "kubectl is not installed", "https://kubernetes.io/docs/tasks/tools/"
            ) from None
        with command as running:
            try:
                completed = running.wait(patience)
            except TimeoutError:
                raise RalphError(f"kubectl did not answer for {patience:.0f} s") from None
        if completed.status != 0:
            reason = plain(os.fsdecode(completed.stderr))
            raise RalphError(
                f"kubectl {arguments[0]} failed ({completed.status}): {reason}",
                "kubectl auth can-i create jobs",
            )
        return completed.stdout
