"""What each other command prints: its tables, its JSON, what it did, and what it refuses."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.save.trees import WORK_TITLE
from tests.support.agent_script import TRUSTED
from tests.support.histories import grow, record
from tests.support.transcript import Transcript, check

if TYPE_CHECKING:
    from tests.support.repo import Repo

GOLDEN = Path(__file__).parent / "commands"
OWN = {"batch", "fleet", "outside", "quickstart", "spawn", "trust"}
"""The files that have a test of their own."""

AGENT = """touch "file-$RALPH_AGENT_ID"
git add --all
git commit --quiet --message work
echo "<promise>COMPLETE</promise>"
"""


@pytest.fixture
def sessions(repo: Repo) -> Repo:
    """Return a project with ended sessions: two alike, one that conflicts, one with saved work."""
    repo.write(".gitignore", ".ralph/\n")
    base = repo.commit("the project")
    now = datetime.now(UTC)
    ids = {"aaaa": "Login page", "bbbb": "", "cccc": "", "dddd": "Half done"}
    grow(repo, "ralph/aaaa", base, {"login": "page\n"}, {"login": "page\nmore\n"})
    grow(repo, "ralph/bbbb", base, {"login": "another\n"})
    grow(repo, "ralph/cccc", base, {"file.txt": "theirs\n"})
    tip = grow(repo, "ralph/dddd", base, {"half": "done\n"})
    grow(repo, "ralph/dddd-wip", tip, {"draft": "draft\n"}, message=f"{WORK_TITLE}20260102T030405Z-dddd")
    for days, (agent_id, title) in enumerate(ids.items(), 2):
        saved = "ralph/dddd-wip" if agent_id == "dddd" else None
        began = now - timedelta(days=days, hours=1)
        ended = (began + timedelta(hours=1)).isoformat(timespec="seconds")
        record(repo, agent_id, base, title=title, began=began, ended=ended, saved=saved)
    repo.write("file.txt", "ours\n")
    repo.commit("the user goes on")
    return repo


COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "ps": [("ps",), ("ps", "--all"), ("ps", "--all", "--json")],
    "review": [("review",), ("review", "--json"), ("review", "--columns", "nothing")],
    "diff": [("diff", "aaaa"), ("diff", "--stat", "aaaa"), ("diff", "--saved", "dddd"), ("diff", "none")],
    "merge": [
        ("merge", "aaaa"),
        ("merge", "aaaa"),
        ("merge", "bbbb"),
        ("merge", "dddd", "--json"),
        ("merge", "none"),
    ],
    "merge-conflict": [("merge", "cccc"), ("merge", "--best-order", "cccc", "bbbb", "aaaa")],
    "drop": [
        ("drop", "aaaa"),
        ("merge", "aaaa"),
        ("drop", "aaaa"),
        ("restore", "aaaa"),
        ("drop", "aaaa", "--json"),
        ("drop", "none"),
    ],
    "apply": [("apply", "aaaa"), ("apply", "dddd"), ("merge", "dddd"), ("apply", "dddd"), ("apply", "dddd")],
    "audit": [("audit",), ("audit", "--json")],
    "config": [("config", "show"), ("config", "show", "--json"), ("config", "nothing")],
    "logs": [("logs", "aaaa"), ("logs", "none")],
    "stop": [("stop", "aaaa"), ("stop", "none"), ("stop", "--all")],
    "rm": [("rm", "aaaa"), ("rm", "none")],
    "sweep": [("sweep",), ("sweep", "--json")],
    "pool": [("pool",), ("pool", "--json")],
    "resume": [("resume", "none"), ("resume", "aaaa", "--", "claude")],
    "worktree": [("worktree", "status"), ("worktree", "exit"), ("worktree", "cleanup")],
    "version": [("version",), ("--version",)],
    "mistakes": [
        ("nothing",),
        ("ps", "--nothing"),
        ("run", "-n", "many"),
        ("merge",),
        ("run", "--branch", "main"),
    ],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(sessions: Repo, name: str) -> None:
    """One after the other, in a project with four ended sessions."""
    transcript = Transcript(sessions.path)
    for words in COMMANDS[name]:
        transcript.type(*words, env=TRUSTED)
    check(GOLDEN / f"{name}.txt", transcript.text)


def test_clean(sessions: Repo) -> None:
    """One session is old: it waits for a second look; ``--dry-run`` and ``--json`` say the same."""
    old = record(sessions, "eeee", sessions.head, title="Long ago")
    for path in (sessions.path / ".ralph" / "run" / "sessions" / old).iterdir():
        os.utime(path, (0, 0))
    sessions.git("update-ref", "refs/ralph/snapshots/ffff/1", sessions.head)
    transcript = Transcript(sessions.path)
    for words in (("clean", "--dry-run"), ("clean",), ("clean", "--json"), ("restore", "ffff")):
        transcript.type(*words, env=TRUSTED)
    check(GOLDEN / "clean.txt", transcript.text)


OUTSIDE: list[tuple[str, ...]] = [
    ("ps",),
    ("review",),
    ("merge", "aaaa"),
    ("run", "--", "true"),
    ("audit",),
    ("sweep",),
    ("worktree", "enter"),
]


def test_outside_of_a_repository(tmp_path: Path) -> None:
    """Each says what is missing."""
    directory = tmp_path / "directory"
    directory.mkdir()
    transcript = Transcript(directory)
    for words in OUTSIDE:
        transcript.type(*words)
    check(GOLDEN / "outside.txt", transcript.text)


def test_trust(repo: Repo) -> None:
    """A project's agent needs approval; then it counts."""
    repo.write(".ralph/config.toml", 'agent = "mine"\n[agents.mine]\ncommand = ["true"]\n')
    repo.write("PROMPT.md", "Do it.\n")
    transcript = Transcript(repo.path)
    for words in (("run", "-n", "1"), ("trust",), ("run", "-n", "1"), ("trust",)):
        transcript.type(*words)
    check(GOLDEN / "trust.txt", transcript.text)


def test_batch(repo: Repo) -> None:
    """Each task gets a session; the second time there is nothing left to do."""
    repo.write("TASKS.md", "- [ ] One\n- [ ] Two\n  with detail\n- [x] Done before\n")
    repo.write("agent.sh", AGENT)
    repo.commit("tasks")
    transcript = Transcript(repo.path)
    for _ in range(2):
        transcript.type("batch", "TASKS.md", "-j", "1", "--json", "--", "sh", "agent.sh", env=TRUSTED)
    transcript.type("batch", "none.md", "--", "true", env=TRUSTED)
    check(GOLDEN / "batch.txt", transcript.text)


def test_spawn(repo: Repo) -> None:
    """It prints the id once the agent runs; an agent that is not there is an error of this command."""
    transcript = Transcript(repo.path)
    spawned = transcript.type("spawn", "-n", "1", "--", "true", env=TRUSTED)
    transcript.type("wait", spawned.stdout.decode().strip(), env=TRUSTED)
    transcript.type("spawn", "--", "no-such-agent", env=TRUSTED)
    check(GOLDEN / "spawn.txt", transcript.text)


def test_quickstart(repo: Repo) -> None:
    """Without a terminal it asks nothing; what it would need is a command to type."""
    transcript = Transcript(repo.path)
    for words in (("quickstart",), ("quickstart", "--agent", "nobody", "--yes")):
        transcript.type(*words)
    check(GOLDEN / "quickstart.txt", transcript.text)


def test_fleet(repo: Repo) -> None:
    """Without a remote there is nothing to meet at."""
    transcript = Transcript(repo.path)
    for words in (("fleet", "ps"), ("fleet", "run", "--count", "2", "--", "true"), ("fleet", "stop", "none")):
        transcript.type(*words, env=TRUSTED)
    check(GOLDEN / "fleet.txt", transcript.text)


def test_each_file_belongs_to_a_test() -> None:
    """What no test reads any more goes."""
    assert {path.stem for path in GOLDEN.iterdir()} == {*COMMANDS, "clean", *OWN}
