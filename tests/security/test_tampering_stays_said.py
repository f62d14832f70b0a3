"""Tampering stays said: after a kill (row 12), by a last process (row 13), and to each command."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.audit.guard import SessionGuard
from ralph_wrap.state.project import find_project
from tests.security import defences
from tests.support.agent_script import PROMISE
from tests.support.sessions import Result, command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


def _findings(result: Result) -> list[str]:
    """Return the findings that a command has logged."""
    return [event["message"] for event in result.warnings if event["event"] == "tampering.found"]


def _tamper(repo: Repo) -> str:
    return f"git -C {repo.path} config core.pager evil"


PAGER = ".git/config: core.pager: git runs a program that this key names"


def test_the_session_names_what_its_agent_did(repo: Repo) -> None:
    """In a warning, and in its report."""
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", _tamper(repo))
    assert _findings(ended) == [PAGER]
    assert ended.report["tampering"] == [PAGER]


def test_a_kill_of_the_wrapper_hides_nothing(repo: Repo) -> None:
    """The next session names it; its comparison with a baseline of its own sees no change."""
    agent = f"{_tamper(repo)}; kill -9 $PPID"
    killed = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    assert killed.status == -signal.SIGKILL
    after = run(repo.path, "-n", "1", "--", "true")
    assert _findings(after) == [PAGER]
    assert "leak.found" not in after.names, "this defence alone does not see it"
    assert _findings(command("sweep", cwd=repo.path)) == [PAGER]


def test_a_look_that_failed_has_found_nothing_and_does_not_say_so(repo: Repo) -> None:
    """The report then has no list, instead of an empty one."""
    project = find_project(repo.path, os.environ)
    without_memory = project._replace(environ={"XDG_STATE_HOME": "/no\0name"})
    guards = [SessionGuard(each, "one") for each in (project, without_memory)]
    for guard in guards:
        guard.begin()
        guard.finish()
    assert [guard.found for guard in guards] == [(), None]


_LOOK_BEFORE_END = ("-n", "1", "--grace", "30s", "--on-leak", "stop")
"""Options of a session that finishes its last look outside the worktree before it ends processes."""


def _last_process(repo: Repo, setting: str) -> str:
    """Return an agent whose child writes a setting of [core] when it is asked to end."""
    ready, child = repo.path.parent / "ready", repo.path.parent / "child"
    # The shell writes itself: a git that it starts could be ended by the same signal.
    write = f"printf '[core]\\n {setting}\\n' >> {repo.path}/.git/config"
    child.write_text(f'trap "{write}; exit" TERM\ntouch {ready}\nwhile :; do sleep 0.05; done\n')
    return f"sh {child} & while ! [ -e {ready} ]; do sleep 0.02; done"


def test_the_last_process_is_seen(repo: Repo) -> None:
    """A child writes when it is asked to end, after the last comparison with the baseline."""
    agent = _last_process(repo, "pager = evil")
    ended = run(repo.path, *_LOOK_BEFORE_END, "--", "sh", "-c", agent)
    assert _findings(ended) == [PAGER]
    assert "leak.found" not in ended.names, "this defence alone does not see it"


@pytest.mark.parametrize("killed", [True, False])
def test_without_the_scan_no_command_says_it(repo: Repo, tmp_path: Path, killed: bool) -> None:
    """The attacks of the two tests above, with their defence off: the next plain git runs the program."""
    ran = tmp_path / "ran"
    program = f"touch {ran}"
    kill = f"git -C {repo.path} config core.fsmonitor '{program}'; kill -9 $PPID"
    agent = kill if killed else _last_process(repo, f"fsmonitor = {program}")
    said = [
        defences.run(defences.NO_SCAN, *words, cwd=repo.path).stderr
        for words in (
            ("run", *_LOOK_BEFORE_END, "--", "sh", "-c", agent),
            ("run", "-n", "1", "--", "true"),
            ("sweep",),
        )
    ]
    assert [name for name in ("tampering.found", "leak.found", "fsmonitor") if name in "".join(said)] == []
    assert not ran.exists()
    repo.git("status")
    assert ran.exists()


@pytest.fixture
def tampered(repo: Repo) -> Repo:
    """Return a repository with a branch, after a session that has tampered."""
    agent = f"echo new > new && git add new && git commit -qm work; {_tamper(repo)}"
    assert run(repo.path, "-n", "1", "--", "sh", "-c", agent).status == 0
    return repo


def _id(repo: Repo) -> str:
    [branch] = [name for name in repo.branches() if name.startswith("ralph/")]
    return branch.removeprefix("ralph/")


@pytest.mark.parametrize("words", [("review",), ("diff", "ID"), ("drop", "ID"), ("sweep",)], ids=" ".join)
def test_reading_commands_warn(tampered: Repo, words: tuple[str, ...]) -> None:
    """One line a finding, and they go on."""
    result = command(*(_id(tampered) if word == "ID" else word for word in words), cwd=tampered.path)
    assert _findings(result) == [PAGER]


@pytest.mark.parametrize("words", [("merge", "ID"), ("apply", "ID"), ("review", "--pr", "ID")], ids=" ".join)
def test_commands_that_land_refuse(tampered: Repo, words: tuple[str, ...]) -> None:
    """Nothing moves until the user decides."""
    before = tampered.head
    given = [_id(tampered) if word == "ID" else word for word in words]
    refused = command(*given, "--json", cwd=tampered.path)
    error = json.loads(refused.stdout)["error"]
    assert (refused.status, error["code"], tampered.head) == (9, "tampered", before)
    assert "core.pager" in error["message"]
    assert "evil" not in error["message"]


def test_the_user_can_go_on(tampered: Repo) -> None:
    """Once, with an option; the warnings stay."""
    landed = command("merge", _id(tampered), "--despite-tampering", cwd=tampered.path)
    assert (landed.status, _findings(landed)) == (0, [PAGER])


def test_a_session_does_not_land_its_branch(repo: Repo) -> None:
    """merge_on_complete refuses as merge does: the agent kept its promise and tampered."""
    repo.write(".ralph/config.toml", 'merge_on_complete = "main"\n')
    assert command("trust", cwd=repo.path).status == 0
    before = repo.head
    agent = f"git commit -q --allow-empty -m work; {_tamper(repo)}; echo '{PROMISE}'"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    assert ended.report["ended_by"] == "promise", ended.stderr
    assert repo.head == before
    assert "branch.not_landed" in ended.stderr


def test_a_fifo_does_not_stop_the_audit(repo: Repo) -> None:
    """Git would wait for ever for the configuration; the audit says what is in its place."""
    (repo.path / ".git/config").rename(repo.path / ".git/aside")
    os.mkfifo(repo.path / ".git/config")
    result = command("audit", "--json", cwd=repo.path)
    titles = [row["title"] for row in json.loads(result.stdout)["data"]]
    assert titles == [".git/config"]
