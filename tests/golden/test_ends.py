"""What a person reads from the start of a session to its end, for each kind of end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import Session
from tests.support.transcript import READER, Transcript, check
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

GOLDEN = Path(__file__).parent / "ends"

COMMIT = "echo new >new && git add new && git commit --quiet --message=work"
DRAFT = "echo draft >draft"

ENDS = {
    "nothing done": ("true", "-n", "1"),
    "a commit": (COMMIT, "-n", "1"),
    "uncommitted": (DRAFT, "-n", "1"),
    "both": (f"{COMMIT}; {DRAFT}", "-n", "1"),
    "staged apart": ("echo staged >file.txt; git add file.txt; echo more >>file.txt", "-n", "1"),
    "promise": ("echo '<promise>COMPLETE</promise>'", "-n", "3"),
    "stalled": ("true", "--max-stalls", "2", "-n", "9"),
    "agent failed": ("exit 3", "--max-failures", "2"),
    "iteration timed out": ("sleep 600", "-n", "1", "--iteration-timeout", "1s"),
    "wall clock": (f"{COMMIT}; sleep 600", "--max-time", "1s"),
    "worktree kept": (DRAFT, "-n", "1", "--keep-worktree"),
    "nested repository": ("git init --quiet inner; echo x >inner/x", "-n", "1"),
    "detached HEAD": (f"git checkout --quiet --detach; {COMMIT}", "-n", "1"),
    "leak": ("echo leak >>$RALPH_PROJECT/file.txt", "-n", "2", "--on-leak", "stop"),
    "a branch by name": (COMMIT, "-n", "1", "--branch", "topic"),
    "isolation off": (DRAFT, "-n", "1", "--isolation", "off"),
    "no such program": (None, "-n", "1", "--", "no-such-program"),
    "kept if dirty": (DRAFT, "-n", "1", "--on-dirty", "keep"),
    "gate failed": (f"{COMMIT}; echo '<promise>COMPLETE</promise>'", "-n", "1", "--verify", "false"),
    "branch dropped if empty": ("true", "-n", "1", "--drop-empty"),
}


@pytest.mark.parametrize("name", ENDS)
def test_end(repo: Repo, name: str) -> None:
    """From the first line to the exit status."""
    body, *options = ENDS[name]
    repo.git("branch", "topic")
    agent = [] if body is None else ["--", "sh", "-c", body]
    transcript = Transcript(repo.path)
    transcript.type("run", *map(str, options), *agent)
    check(GOLDEN / f"{name.replace(' ', '-')}.txt", transcript.text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_signal(repo: Repo, number: signal.Signals) -> None:
    """The work is saved, and the status is 128 and the signal's number."""
    transcript = Transcript(repo.path)
    words = ("run", "--", "sh", "-c", f"{COMMIT}; {DRAFT}; mv draft ready; exec sleep 600")
    with Session(repo.path, *words[1:], env=READER) as session:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/ready")], "the agent's work")
        session.send(number)
        transcript.note(words, session.finish())
    check(GOLDEN / f"{number.name}.txt", transcript.text)
