"""Real sessions of the installed program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from tests.support.fork_server import ForkedCommand, server
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAM = os.fspath(Path(sys.executable).parent / "ralph-wrap")
"""The installed console script."""


@dataclass(frozen=True)
class Result:
    """A session that has ended."""

    status: int
    stdout: bytes
    stderr: str
    directory: Path | None

    @property
    def report(self) -> dict[str, Any]:
        """Its ``report.json``."""
        assert self.directory is not None, self.stderr
        loaded: dict[str, Any] = json.loads((self.directory / "report.json").read_text())
        return loaded

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its event log."""
        assert self.directory is not None, self.stderr
        return read_events(self.directory)

    @property
    def names(self) -> list[str]:
        """The names of its events, in order."""
        return [event["event"] for event in self.events]

    @property
    def narration(self) -> list[dict[str, Any]]:
        """What it narrated on stderr, which is no terminal here; other lines are the agent's."""
        lines = [line for line in self.stderr.splitlines() if line.startswith('{"at": ')]
        return [json.loads(line) for line in lines]

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """Its narrated warnings and errors, without the one that git before 2.31 gives each session."""
        told = [event for event in self.narration if event["event"] != "hooks.not_disabled"]
        return [event for event in told if event["level"] != "info"]

    @property
    def ending(self) -> tuple[str, int, int]:
        """What ended it, after how many iterations, and the exit status, as the report also has it."""
        assert self.report["exit_status"] == self.status, self.stderr
        return self.report["ended_by"], self.report["iterations"], self.status

    @property
    def output_log(self) -> bytes:
        """Its ``output.log``."""
        assert self.directory is not None, self.stderr
        return (self.directory / "output.log").read_bytes()


class Session:
    """A session that runs in the background; leaving the context kills what is left of it.

    Arguments:
        project: where it is started, unless *cwd* is given.
        arguments: of ``ralph-wrap run``.
        env: added to our environment.
        stdin: its standard input.
        stdout: its standard output.
        cwd: where it is started.
        state: where its records are.
        under: a command line that executes the program in its own place, such as ``nohup``.

    """

    def __init__(
        self,
        project: Path,
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        cwd: Path | None = None,
        state: Path | None = None,
        under: Sequence[str] = (),
    ) -> None:
        self._state = state or project / ".ralph" / "run"
        self._before = set(self._state.glob("sessions/*"))
        self.process = start(
            *("run", *arguments), cwd=cwd or project, env=env, stdin=stdin, stdout=stdout, under=under
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with self.process:
            pass

    def find_directory(self) -> Path | None:
        """Return its own directory below ``sessions/``, if it has made one."""
        new = set(self._state.glob("sessions/*")) - self._before
        mine = [path for path in new if _pid_of(path) == self.process.pid]
        return mine[0] if mine else None

    @property
    def directory(self) -> Path:
        """Its own directory below ``sessions/``."""
        return eventually(self.find_directory, "the session's directory")

    def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait for the *count*-th event of a name and return it."""

        def look() -> dict[str, Any] | None:
            found = [entry for entry in read_events(self.directory) if entry["event"] == event]
            return found[count - 1] if len(found) >= count else None

        return eventually(look, f"event {event}")

    def wait_until_kept(self) -> None:
        """Wait until an iteration has ended, and what it left in a worktree is kept, or cannot be."""
        self.wait_for("iteration.ended")

        def look() -> bool:
            names = {entry["event"] for entry in read_events(self.directory)}
            return "workspace.created" not in names or bool(names & {"iteration.kept", "snapshot.failed"})

        eventually(look, "the snapshot")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def press_ctrl_c_until(self, event: str) -> None:
        """Send SIGINT again and again until an event: two that come at once count as one (signal(7))."""

        def look() -> bool:
            if event in {entry["event"] for entry in read_events(self.directory)}:
                return True
            self.send(signal.SIGINT)
            return False

        eventually(look, f"event {event}")

    def finish(self, patience: float = CAP * 3) -> Result:
        """Wait for its end, for *patience* seconds at most."""
        stdout, stderr = self.process.communicate(timeout=patience)
        status = self.process.wait()
        return Result(status, stdout or b"", stderr.decode(errors="replace"), self.find_directory())


def start(
    *arguments: str | os.PathLike[str],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    under: Sequence[str] = (),
) -> subprocess.Popen[bytes] | ForkedCommand:
    """Start the program; its command line and environment may be those of a fork (see ``fork_server.py``).

    Arguments:
        arguments: of ``ralph-wrap``.
        cwd: where.
        env: added to our environment.
        stdin: its standard input.
        stdout: its standard output.
        stderr: its standard error.
        under: a command line that executes the program in its own place; then it is no fork.

    """
    words, environ = _line(*arguments), {**os.environ, **(env or {})}
    if under or stdin == subprocess.PIPE or not server().can_run(words, environ):
        line = (*under, PROGRAM, *words)
        return subprocess.Popen(line, cwd=cwd, env=environ, stdin=stdin, stdout=stdout, stderr=stderr)
    return server().start(*words, cwd=cwd, environ=environ, stdin=stdin, stdout=stdout, stderr=stderr)


def run(
    project: Path,
    *arguments: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    state: Path | None = None,
    **options: Any,
) -> Result:
    """Run a session to its end."""
    with Session(project, *arguments, env=env, state=state, **options) as session:
        return session.finish()


def command(*arguments: str | os.PathLike[str], cwd: Path, env: Mapping[str, str] | None = None) -> Result:
    """Run any other command of the program to its end."""
    with start(*arguments, cwd=cwd, env=env) as process:
        try:
            stdout, stderr = process.communicate(timeout=CAP * 3)  # a batch has sessions
        finally:
            process.kill()
        return Result(process.wait(), stdout, stderr.decode(errors="replace"), None)


def _line(*arguments: str | os.PathLike[str]) -> list[str]:
    return [os.fsdecode(argument) for argument in arguments]


def assert_ended_by(result: Result, number: int, ended_by: str = "signal") -> None:
    """Check status, report, and the exit report on stderr of a session that a signal has ended.

    Arguments:
        result: of the session.
        number: of the signal.
        ended_by: why its loop ended; another reason if the signal came after that.

    """
    assert result.status == 128 + number, result.stderr
    assert (result.report["exit_status"], result.report["ended_by"]) == (128 + number, ended_by)
    assert [printed["event"] for printed in result.narration][-1] == "session.released"
    assert [printed for printed in result.warnings if printed["level"] == "error"] == []


def read_events(directory: Path) -> list[dict[str, Any]]:
    """Return the complete lines of an event log."""
    try:
        content = (directory / "events.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def _pid_of(directory: Path) -> int | None:
    registered = [event for event in read_events(directory) if event["event"] == "session.registered"]
    return int(registered[0]["pid"]) if registered else None
