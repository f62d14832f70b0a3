"""`fetch` and `review` of 1,000 sessions on a git server, against `git fetch` and `review` of 1,000 branches.

Both sides begin with a clone of the main branch, and get the work from git-http-backend(1) on this machine.
The number is the processor time of all processes but those of the server: a fetch waits for two disks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import review
from scenarios import PROGRAM, Verdict, compare, in_turns

sys.path.append(os.fspath(Path(__file__).parents[1]))  # the server is one of the tests
from ralph_wrap.state.remote_claim import DONE, RemoteClaim, ref_of
from ralph_wrap.state.session_start import SessionStart
from tests.kubernetes.git_server import Handler, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scenarios import Repository

LIMIT = 1.5
_PROCESSOR_TIME = os.fspath(Path(__file__).with_name("processor_time.py"))
_PLAIN = ("git", "fetch", "--quiet", "--no-tags", "origin", "refs/heads/ralph/*:refs/heads/ralph/*")


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim; each run has a clone of its own."""
    repository = review.make_reviewed(directory / "fetch", files or review.FILES)
    _make_remote(repository)
    numbers = count()
    with _server(repository.path.parent) as address:

        def clone() -> Path:
            path = repository.path.parent / f"clone-{next(numbers)}"
            repository.git(
                "clone", "--quiet", "--single-branch", "--no-tags", f"{address}/remote.git", os.fspath(path)
            )
            return path

        def ours() -> float:
            path = clone()
            return _seconds(repository, path, PROGRAM, "fetch") + _reviewed(repository, path)

        def theirs() -> float:
            path = clone()
            return _seconds(repository, path, *_PLAIN) + _reviewed(repository, path)

        mine, others = in_turns(repeat or 3, ours, theirs)
    claim = f"processor time of fetch and review of {review.BRANCHES:,} sessions"
    yield compare(claim, LIMIT, mine, others)


def _reviewed(repository: Repository, path: Path) -> float:
    return _seconds(repository, path, PROGRAM, "review", "--json")


def _seconds(repository: Repository, path: Path, *command: str) -> float:
    """Run a command in a clone, and return its processor time."""
    words = (sys.executable, _PROCESSOR_TIME, *command)
    done = subprocess.run(words, cwd=path, env=repository.environ, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def _make_remote(repository: Repository) -> None:
    """Make the bare repository, where each branch is that of a session that is done."""
    remote = repository.path.parent / "remote.git"
    repository.git("clone", "--quiet", "--bare", os.fspath(repository.path), os.fspath(remote))

    def git(*arguments: str, stdin: str = "") -> str:
        return subprocess.run(
            ("git", *arguments),
            cwd=remote,
            env=repository.environ,
            input=stdin,
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout

    base = git("rev-parse", "main~10").strip()
    claims = remote / "claims"
    claims.mkdir()
    refs = git("for-each-ref", "--format=%(refname)", "refs/heads/ralph/").split()
    ids = [ref.rpartition("/")[2] for ref in refs]
    for agent_id in ids:
        (claims / agent_id).write_bytes(_claim(agent_id, base))
    oids = git(
        "hash-object", "-w", "--stdin-paths", stdin="".join(f"{claims / one}\n" for one in ids)
    ).split()
    changes = [f"create {ref_of(one)} {oid}\n" for one, oid in zip(ids, oids, strict=True)]
    git("update-ref", "--stdin", stdin="".join(changes))
    git("repack", "-a", "-d", "--quiet")
    git("pack-refs", "--all")


def _claim(agent_id: str, base: str) -> bytes:
    start = SessionStart({"max_iterations": "5", "prompt": "Fix the failing tests. " * 20}, ("claude",), ".")
    session = f"20261124T090000Z-{agent_id}"
    claim = RemoteClaim(agent_id, session, f"ralph/{agent_id}", base, node="node1", state=DONE, start=start)
    return claim.next(title=f"task {agent_id}", iteration=3, cost_usd=0.5, ended_by="promise").encode()


class _Quiet(Handler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def _server(root: Path) -> Iterator[str]:
    """Serve the repositories in a directory, and yield the address."""
    Handler.root = os.fspath(root)
    with Server(("127.0.0.1", 0), _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
