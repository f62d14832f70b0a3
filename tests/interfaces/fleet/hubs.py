"""A hub in front of the remote of a run."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from tests.support.sessions import start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from tests.interfaces.fleet.runs import FleetRun

PUSH = ("git", "-c", "http.postBuffer=1000", "push", "-q")  # a small buffer: content comes in chunks


class RunningHub:
    """A hub in front of the remote of a run; origin counts the pushes that it gets."""

    def __init__(self, run: FleetRun) -> None:
        self.run = run
        self.directory = run.directory / "hub"
        self.credential = run.directory / "credential"
        self.credential.write_text("agent:secret word\n")
        hook = run.remote.path / "hooks/post-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho push >> {run.directory}/pushes\n")
        hook.chmod(0o755)
        self.port = 0
        self.interval = 0.5
        self.origin = str(run.remote.path)
        self.log = run.directory / "hub.log"
        self.start()

    def words(self) -> tuple[str, ...]:
        """Return its command line."""
        return (
            *("fleet", "hub", str(self.directory), "--origin", self.origin),
            *("--credential", str(self.credential), "--interval", f"{self.interval}s"),
            *("--listen", f"127.0.0.1:{self.port}"),
        )

    def start(self) -> None:
        """Start it; after a kill again at the same port."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = start(*self.words(), cwd=self.run.directory, stderr=log)

        def port() -> int:
            text = self.log.read_bytes()[begun:].decode()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/project\.git", text)
            return int(found[1]) if found else 0

        self.port = eventually(port, "the hub")

    def answers(self) -> bool:
        """Return whether a process listens at the port."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its exit status."""
        self.process.send_signal(number)
        self.process.communicate(timeout=CAP)
        return self.process.wait()

    @property
    def address(self) -> str:
        """The address for clients, with their password."""
        return f"http://agent:secret%20word@127.0.0.1:{self.port}/project.git"

    def push(self, *refspecs: str, address: str = "") -> subprocess.CompletedProcess[bytes]:
        """Push from the project."""
        words = [*PUSH, address or self.address, *refspecs]
        return subprocess.run(words, cwd=self.run.repo.path, capture_output=True, check=False)

    def begin_push(self, refspec: str) -> subprocess.Popen[bytes]:
        """Begin to push from the project."""
        return subprocess.Popen([*PUSH, self.address, refspec], cwd=self.run.repo.path)

    def pushes(self) -> int:
        """Return how many pushes origin has got."""
        log = self.run.directory / "pushes"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def has(self, ref: str, oid: str | None) -> bool:
        """Return whether origin has an object at a ref."""
        return self.run.refs(ref).get(ref) == oid

    def arrives(self, ref: str, oid: str | None) -> None:
        """Wait until origin has it."""
        eventually(lambda: self.has(ref, oid), f"{ref} at origin")
