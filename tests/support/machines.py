"""The remote of several machines, and what sessions have there."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests.support.repo import Repo
from tests.support.sessions import Session
from tests.support.wait import eventually


def refs(remote: Repo) -> dict[str, str]:
    """Return the refs of the remote that belong to sessions."""
    rows = remote.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/ralph", "refs/ralph")
    return dict(row.split(" ", 1) for row in rows.splitlines())


def claim_of(remote: Repo, agent_id: str) -> dict[str, Any]:
    """Return the claim on a session."""
    found: dict[str, Any] = json.loads(remote.show(f"refs/ralph/claims/{agent_id}"))
    return found


def killed(repo: Repo, script: str, *, until: str) -> str:
    """Kill a mirrored session with its agent once a snapshot on the remote has a file; return its id.

    Arguments:
        script: of the agent, for ``sh -c``; it writes its pid to ``../agent.pid``, beside the project.
        until: path of the file.

    """
    pid_file = repo.path.parent / "agent.pid"
    pid_file.unlink(missing_ok=True)
    with Session(repo.path, "--remote", "origin", "--", "sh", "-c", script) as session:
        agent_id = session.directory.name.rpartition("-")[2]
        origin = Repo(repo.path.parent / "remote.git")
        eventually(lambda: is_mirrored(origin, agent_id, until), "the snapshot on the remote")
        wait_for_pushes(origin, agent_id, 2)  # the first one can be from between two commands of the agent
        agent = int(pid_file.read_text())
        os.kill(session.process.pid, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
    return agent_id


def wait_for_pushes(remote: Repo, agent_id: str, number: int) -> None:
    """Wait until a session has pushed a number of times more."""
    first = claim_of(remote, agent_id)["sequence"]
    eventually(lambda: claim_of(remote, agent_id)["sequence"] >= first + number, "more pushes")


def is_mirrored(remote: Repo, agent_id: str, path: str) -> bool:
    """Return whether a snapshot on the remote has a file."""
    return any(
        path in remote.git("ls-tree", "-r", "--name-only", ref).splitlines()
        for ref in refs(remote)
        if ref.startswith(f"refs/ralph/snapshots/{agent_id}/")
    )
