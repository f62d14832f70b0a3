"""Find the program that makes the sandbox which the user wants; a sandbox that is impossible is an error."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from ralph_wrap.config import Isolation, SandboxMode, Settings
from ralph_wrap.errors import SandboxError
from ralph_wrap.session.sandbox import bubblewrap, launcher
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import Commands
from ralph_wrap.system.process import RunningCommand

PYTHON = (os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8", "-c")
"""The command line of a program of ours that stands alone; it needs no virtual environment."""

_LONGEST_TRIAL = 30.0  # seconds
_INSTALL = "apt-get install bubblewrap"
_NO_NAMESPACES = Commands.of(
    "on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    "in a container: --sandbox landlock, or see docs/sandbox.md",
)


class SandboxBackend(NamedTuple):
    """The program that makes a sandbox, and the user's additions to it.

    Attributes:
        bwrap: the path of bubblewrap; empty for Landlock.
        abi: the version of Landlock.
        writable: further paths that the agent can write.
        network: all, none, or the hosts.

    """

    bwrap: str
    abi: int
    writable: tuple[Path, ...]
    network: tuple[str, ...]

    @property
    def limits(self) -> str:
        """What this sandbox cannot do, in words; empty if it does all."""
        if self.bwrap:
            return ""
        signals = "" if self.abi >= launcher.SCOPES_SINCE else ", and signal other processes"
        return (
            "Landlock only stops writes: the agent can still read your files and processes,"
            f" connect to unix sockets{signals}"
        )


class BubblewrapTrial:
    """Tries whether bubblewrap makes a sandbox here, while we do other work; the context ends it.

    Arguments:
        environ: the environment of the session.
        wanted: ``False``: there is nothing to try.

    """

    def __init__(self, environ: Mapping[str, str], *, wanted: bool = True) -> None:
        path = shutil.which("bwrap", path=environ.get("PATH", os.defpath)) if wanted else None
        self._path = path or ""
        self._running: RunningCommand | None = None
        self._problem = SandboxError("--sandbox bwrap: bubblewrap is not installed", _INSTALL)
        if path:
            command = (path, *bubblewrap.TRIAL, "--unshare-net", "--", "true")
            try:
                self._running = RunningCommand(command, cwd=Path("/"), env=environ)
            except OSError as error:
                self._problem = _no_sandbox(error.strerror)

    def result(self) -> tuple[str, SandboxError | None]:
        """Return the path of bubblewrap, or the reason why it makes no sandbox."""
        if self._running is None:
            return "", self._problem
        try:
            done = self._running.wait(_LONGEST_TRIAL)
        except TimeoutError:
            return "", _no_sandbox(f"it did not end in {_LONGEST_TRIAL:.0f} s")
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return (self._path, None) if done.status == 0 else ("", _no_sandbox("".join(lines[-1:])))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.__exit__()


def _no_sandbox(reason: str | None) -> SandboxError:
    message = f"--sandbox bwrap: bubblewrap makes no sandbox here: {reason}"
    return SandboxError(message, _NO_NAMESPACES)


def start_trial(settings: Settings, project: Project) -> BubblewrapTrial:
    """Start to try bubblewrap, if the settings allow it."""
    return BubblewrapTrial(project.environ, wanted=settings.sandbox is not SandboxMode.LANDLOCK)


def choose(settings: Settings, project: Project, trial: BubblewrapTrial) -> SandboxBackend:
    """Return the program for the sandbox of a session.

    Raises:
        SandboxError: the sandbox is not possible.

    """
    mode = settings.sandbox
    shares_refs = settings.isolation in {Isolation.PREFER, Isolation.REQUIRE}
    if settings.branch and "/" not in settings.branch and shares_refs:
        raise SandboxError(
            f"--sandbox: the agent would need to write all of refs/heads for branch {settings.branch!r}",
            f"name a branch in a directory: --branch ralph/{settings.branch}",
        )
    if shares_refs and project.repository and (project.repository.common_dir / "reftable").is_dir():
        raise SandboxError("--sandbox: the repository has all its refs in one table", "--isolation clone")
    if not os.access(PYTHON[0], os.X_OK):
        raise SandboxError(f"--sandbox: your user cannot run {PYTHON[0]}, which starts the agent in it")
    writable = tuple(_resolved(path, project) for path in settings.sandbox_write)
    abi, bwrap, problem = launcher.landlock_abi(), "", None
    if mode is not SandboxMode.LANDLOCK:
        bwrap, problem = trial.result()
    confined = settings.sandbox_network != ("all",)
    if problem and (mode is SandboxMode.BWRAP or not abi or confined):
        raise problem
    if not bwrap and not abi:
        raise SandboxError("--sandbox landlock: this kernel has no Landlock", "--sandbox bwrap")
    if not bwrap and confined:
        raise SandboxError("--sandbox landlock cannot close the network (sandbox_network)", "--sandbox bwrap")
    return SandboxBackend(bwrap, abi, writable, settings.sandbox_network)


def _resolved(path: str, project: Project) -> Path:
    """Return a path that the user allows; ``~`` is the home, and other paths begin in the project root."""
    home = project.environ.get("HOME", "/")
    expanded = Path(home + path[1:] if path == "~" or path.startswith("~/") else path)
    found = (project.main / expanded).resolve()
    if not found.exists():
        raise SandboxError(f"sandbox_write: {found} does not exist", "create it, or take it from the list")
    return found
