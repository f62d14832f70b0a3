"""Runs of a fleet: their spec on a bare remote, and workers as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import psutil

from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet.spec import FleetSpec, write_spec
from tests.support.sessions import start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.fork_server import ForkedCommand
    from tests.support.repo import Repo

RUN = "r1"
"""The id of the run."""

BEAT = "remote_beat"

RECORDER = """#!{python}
import json, pathlib, sys
directory = pathlib.Path("{directory}")
stdin = sys.stdin.read() if "-" in sys.argv else ""
with (directory / "calls").open("a") as log:
    log.write(json.dumps({{"arguments": sys.argv[1:], "stdin": stdin}}) + "\\n")
if "get" in sys.argv:
    print((directory / "job.json").read_text())
"""
"""A kubectl that shows the form of its arguments; tests/kubernetes has the real one."""


class FleetWorker:
    """A worker that runs, and the directory that it works in."""

    def __init__(self, process: subprocess.Popen[bytes] | ForkedCommand, workspace: Path) -> None:
        self.process = process
        self.workspace = workspace

    def ended(self) -> tuple[int, str]:
        """Wait for its end, and return its exit status and what it has printed."""
        stdout, stderr = self.process.communicate(timeout=2 * CAP)
        return self.process.wait(), (stdout + stderr).decode(errors="replace")

    def children(self) -> list[psutil.Process]:
        """Return the processes that it has started; none after its end."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children()
        return []

    def kill(self) -> None:
        """Kill the worker with all its processes at once, as the end of a node does."""
        self.signal_all(signal.SIGKILL)

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the worker and to all its processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.process.pid)
            for process in (top, *top.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)


class FleetRun:
    """One run on a bare remote.

    Arguments:
        repo: the user's project.
        remote: a bare repository.
        directory: for workspaces.

    """

    def __init__(self, repo: Repo, remote: Repo, directory: Path) -> None:
        self.repo = repo
        self.remote = remote
        self.directory = directory
        self.spec = ""
        self._workers: list[FleetWorker] = []

    def begin(self, script: str, *, size: int = 1, beat: str = "200ms", **more: Any) -> str:
        """Put the run on the remote, with a shell script for its agent; return the id of its spec."""
        self.repo.write(".gitignore", ".ralph/run/\n.ralph/worktrees/\n")
        config = self.repo.path / ".ralph/config.toml"
        agents = config.read_text() if config.exists() else ""
        self.repo.write(".ralph/config.toml", f'{BEAT} = "{beat}"\n{agents}')
        self.repo.git("add", "-A")
        self.repo.git("commit", "-qm", "quick beats")
        options = more.pop("options", {"max_iterations": "1"})
        command = more.pop("command", ("sh", "-c", script))
        spec = FleetSpec(run=RUN, size=size, options=options, command=command, **more)
        git = Git(self.repo.path, git_environment(os.environ))
        self.spec = write_spec(git, spec, self.repo.git("rev-parse", "HEAD"))
        self.repo.git("push", "-q", "origin", f"{self.spec}:refs/ralph/fleet/{RUN}/spec")
        return self.spec

    def work(
        self, index: int = 0, *, grace: int = 30, workspace: str = "", env: Mapping[str, str] | None = None
    ) -> FleetWorker:
        """Start a worker in a workspace of its own."""
        path = self.directory / (workspace or f"work{len(self._workers)}")
        order = {
            "RALPH_FLEET_REMOTE": str(self.remote.path),
            "RALPH_FLEET_RUN": RUN,
            "RALPH_FLEET_SPEC": self.spec,
            "RALPH_FLEET_INDEX": str(index),
            "RALPH_FLEET_GRACE": str(grace),
            "RALPH_FLEET_WORKSPACE": str(path),
        }
        worker = FleetWorker(start("fleet", "work", cwd=self.directory, env=order | dict(env or {})), path)
        self._workers.append(worker)
        return worker

    def kubectl(self, job: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Return an environment with a kubectl that records its calls and answers with a Job."""
        programs = self.directory / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "job.json").write_text(json.dumps(job) if job else "")
        recorder = programs / "kubectl"
        recorder.write_text(RECORDER.format(python=sys.executable, directory=programs))
        recorder.chmod(0o755)
        return {"PATH": f"{programs}:{os.environ['PATH']}"}

    def calls(self) -> list[dict[str, Any]]:
        """Return what kubectl was called with."""
        log = self.directory / "programs/calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """Return the refs of the remote."""
        rows = self.remote.git("for-each-ref", "--format=%(refname) %(objectname)", prefix)
        return dict(row.split(" ", 1) for row in rows.splitlines())

    def state(self, index: int = 0) -> dict[str, Any]:
        """Return the state of an index; empty without one."""
        ref = f"refs/ralph/fleet/{RUN}/index/{index}"
        return json.loads(self.remote.show(ref)) if ref in self.refs(ref) else {}

    def claim(self, index: int = 0) -> dict[str, Any]:
        """Return the claim on the session of an index; empty without one."""
        ref = f"refs/ralph/claims/{self.state(index).get('id', '')}"
        return json.loads(self.remote.show(ref)) if ref in self.refs(ref) else {}

    def put(self, ref: str, content: str) -> None:
        """Replace the blob of a ref on the remote, as each user of the remote can."""
        blob = self.directory / "blob"
        blob.write_text(content)
        oid = self.repo.git("hash-object", "-w", str(blob))

        def is_put() -> bool:  # a push of a killed worker may still end, and then this one is rejected
            self.repo.git("push", "-qf", "origin", f"{oid}:{ref}", check=False)
            return self.refs(ref).get(ref) == oid

        eventually(is_put, f"{ref} on the remote")

    def wait_until_mirrored(self, name: str) -> None:
        """Wait until a snapshot on the remote has a file."""
        prefix = "refs/ralph/snapshots/"
        eventually(lambda: self.holds(name, f"{prefix}{self.state().get('id')}/"), f"{name} on the remote")

    def holds(self, name: str, prefix: str = "refs/") -> bool:
        """Return whether a ref on the remote has a file."""
        oids = {
            oid for oid in self.refs(prefix).values() if self.remote.git("cat-file", "-t", oid) == "commit"
        }
        listed = [self.remote.git("ls-tree", "-r", "--name-only", oid) for oid in oids]
        return any(name in names.splitlines() for names in listed)

    def end(self) -> None:
        """Kill the workers that still run."""
        for worker in self._workers:
            worker.kill()
            with worker.process:
                pass
