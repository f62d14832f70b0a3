"""The remote of a fleet: a repository behind :mod:`tests.kubernetes.git_server`, and what sessions push."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.kubernetes import git_server
from tests.kubernetes.control_plane import ADDRESS
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.machine import Daemon, Machine

LIST_UPDATES = """#!/bin/sh
if [ "$1" = committed ]; then cat >> "$GIT_DIR/updates"; fi
"""
REFUSE = """#!/bin/sh
[ ! -e "$GIT_DIR/refuse" ] || { echo 'no pushes today' >&2; exit 1; }
"""


class Update(NamedTuple):
    """A ref that a push has moved."""

    old: str
    new: str
    ref: str


class Remote:
    """A bare repository that the git server serves; each test has one.

    Attributes:
        path: the repository
        address: where sessions find it

    """

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / f"{name}.git"
        self.address = f"http://{ADDRESS}/{name}.git"
        subprocess.run(
            ["git", "init", "--quiet", "--bare", "--initial-branch=main", self.path], check=True, timeout=60
        )
        self.git("config", "http.receivepack", "true")
        self._note_updates()

    def _note_updates(self) -> None:
        self.git("config", "receive.autogc", "false")  # what was pushed and moved is looked at, too
        for hook, content in {"reference-transaction": LIST_UPDATES, "pre-receive": REFUSE}.items():
            file = self.path / "hooks" / hook
            file.write_text(content)
            file.chmod(0o755)
        (self.path / "updates").touch()

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git in the repository and return what it printed."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, input=stdin, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"git {arguments}: {done.stderr.decode()}"
        return done.stdout.decode()

    def attempt(self, *arguments: str) -> bool:
        """Run git in the repository and return whether it succeeded."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, capture_output=True, timeout=60, check=False
        )
        return done.returncode == 0

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """Return the refs with their objects."""
        listed = self.git("for-each-ref", "--format=%(refname) %(objectname)", prefix)
        return dict(line.split(" ") for line in listed.splitlines())

    def updates(self) -> Iterator[Update]:
        """Return what the pushes have moved, in their order."""
        for line in (self.path / "updates").read_text().splitlines():
            yield Update(*line.split(" ", 2))

    def refuse(self, *, yes: bool) -> None:
        """Refuse each push, or accept them again."""
        (self.path / "refuse").touch() if yes else (self.path / "refuse").unlink()


class GitServer:
    """The process that serves the repositories of a machine.

    Attributes:
        root: the directory of the repositories and of the journal

    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.root = machine.directory / "git"
        self.root.mkdir()
        self._run("journal")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        daemon = self._daemon = self._run("serve")

        def answers() -> bool:
            daemon.require()
            probe = f"exec 3<>/dev/tcp/{ADDRESS}/{git_server.PORT}"
            return self._machine.attempt("bash", "-c", probe).returncode == 0

        eventually(answers, "the git server to answer")

    def _run(self, what: str) -> Daemon:
        words = (what, str(self.root), ADDRESS)
        top = Path(git_server.__file__).parents[2]
        env = ("env", f"PYTHONPATH={top}", f"HOME={self.root}", "GIT_CONFIG_NOSYSTEM=1")
        program = (*env, sys.executable, "-m", git_server.__name__)
        return self._machine.start(f"git-{what}", *program, *words)

    def stop(self) -> None:
        """Kill it: each connection is refused until the next start."""
        self._daemon.kill()
