"""A container with a project mounted, the commands that run in it, and what the host sees of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import docker
from docker.errors import APIError
from docker.models.containers import Container

from ralph_wrap.system.log import FORMAT_VARIABLE
from tests.support.wait import eventually

PROJECT = "/workspace/project"  # the WORKDIR of the image

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command in a container ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str

    def narration(self) -> list[dict[str, Any]]:
        """Return the lines of standard error, each a JSON object."""
        return [json.loads(line) for line in self.stderr.splitlines()]


@dataclass(frozen=True, slots=True)
class Running:
    """A command that runs in a container, and writes to the container's log."""

    box: "Box"
    exec_id: str

    def wait(self) -> int:
        """Return the exit status once the command has ended."""
        state = self.box.eventually(self._ended, "a command to end")
        status: int = state["ExitCode"]
        return status

    def _ended(self) -> dict[str, Any] | None:
        state: dict[str, Any] = self.box.engine.api.exec_inspect(self.exec_id)
        return None if state["ExitCode"] is None else state


@dataclass(frozen=True, slots=True)
class Box:
    """A running container and the host's path of the project that is mounted in it."""

    engine: docker.DockerClient
    container: Container
    project: Path

    def run(self, *command: str, user: str = "", env: dict[str, str] | None = None) -> Ended:
        """Run a command to its end; `user` is that of `docker exec --user`."""
        ended = self.container.exec_run(
            list(command), user=user, environment={FORMAT_VARIABLE: "json", **(env or {})}, demux=True
        )
        output: Any = ended.output  # the stubs do not know of demux
        stdout, stderr = output
        assert ended.exit_code is not None
        return Ended(ended.exit_code, (stdout or b"").decode(), (stderr or b"").decode())

    def start(self, *command: str) -> Running:
        """Start a command as the user of the container, and return at once."""
        assert self.container.id is not None
        logged = ["sh", "-c", 'exec "$@" >/proc/1/fd/1 2>/proc/1/fd/2', "sh", *command]
        created = self.engine.api.exec_create(self.container.id, logged)
        self.engine.api.exec_start(created["Id"], detach=True)
        return Running(self, created["Id"])

    def eventually(self, look: Callable[[], T | None], what: str) -> T:
        """Return the first true answer of `look`; if there is none, fail with the container's log."""
        try:
            return eventually(look, what)
        except AssertionError as error:
            error.add_note(self.log())
            raise

    def log(self) -> str:
        """Return what PID 1 wrote, and the commands that were started and not run."""
        return self.container.logs().decode()

    def pause(self) -> None:
        """Do `docker pause`, again where runc gives up on a busy machine.

        With the freezer of cgroup v1 it tries a number of times (https://github.com/opencontainers/runc/pull/2791:
        "still a game of chances"), then thaws the container again and says "unable to freeze".
        """
        self.eventually(self._frozen, "the container to be paused")

    def _frozen(self) -> bool:
        try:
            self.container.pause()
        except APIError as error:
            if "unable to freeze" not in str(error):
                raise
            return False
        return True

    def end(self, seconds: int = 10) -> int:
        """Do `docker stop`, by default with its own time-out, and return the exit status of the container."""
        self.container.stop(timeout=seconds)
        return self.wait()

    def wait(self) -> int:
        """Return the exit status of the container once it has ended."""
        status: int = self.container.wait(timeout=60)["StatusCode"]
        return status

    def record(self) -> dict[str, Any]:
        """Return the record of the one session that is live in the project."""
        (path,) = (self.project / ".ralph/run/agents").glob("*.json")
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return record

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of the sessions that have ended in the project."""
        paths = sorted((self.project / ".ralph/run/sessions").glob("*/report.json"))
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


class StartBox(Protocol):
    """What starts the containers of one test."""

    def __call__(
        self,
        project: Path,
        *command: str,
        mode: str = "rw",
        user: str = "",
        init: bool = False,
        entrypoint: str | None = None,
        memory: str | None = None,
        env: dict[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        **options: Any,
    ) -> Box:
        """Do `docker run --user USER --entrypoint ENTRYPOINT [--init] IMAGE COMMAND...`.

        The project is mounted with `mode` `rw` or `ro`; `memory` is the limit, without swap.
        PID 1 has the variables in `env`. `mounts` names further directories and where they are mounted;
        `options` are further ones of the engine.
        """
