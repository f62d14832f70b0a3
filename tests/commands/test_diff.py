"""``ralph-wrap diff``: which two sides are shown, and that git shows them as its user wants."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import diff
from ralph_wrap.errors import NotFoundError, UsageError
from ralph_wrap.state import project
from tests.support.histories import grow, record
from tests.support.sessions import PROGRAM, command, run
from tests.support.terminal import CTRL_C, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo


def _sides(repo: Repo, name: str, other: str | None = None, **options: bool | int) -> diff.DiffSides:
    found_project = project.find_project(repo.path, os.environ)
    with project.objects_of(found_project) as objects:
        return diff.sides(found_project, objects, name, other, **options)  # type: ignore[arg-type]


def test_what_has_landed_begins_at_its_recorded_base(repo: Repo) -> None:
    """A merge lands nothing of it any more, and a remark says so; it is the same without a main branch."""
    first = repo.head
    tip = grow(repo, "ralph/a3f2", first, {"new": "new\n"})
    repo.git("merge", "-q", "--ff-only", "ralph/a3f2")
    record(repo, "a3f2", first)
    assert _sides(repo, "a3f2") == diff.DiffSides(first, tip, remark="main has all of ralph/a3f2")
    done = command("diff", "a3f2", "--stat", cwd=repo.path)
    assert "main has all of ralph/a3f2: only the session's record says where it began" in done.stderr
    assert b"1 file changed" in done.stdout
    repo.git("checkout", "-q", "--detach")
    repo.git("branch", "-m", "main", "elsewhere")
    assert _sides(repo, "a3f2") == diff.DiffSides(first, tip, remark="there is no main branch")


@pytest.mark.parametrize("recorded", [None, "1" * 40, "HEAD", "tip"])
def test_a_branch_is_compared_with_the_merge_base(repo: Repo, recorded: str | None) -> None:
    """Whatever its session has recorded: that is where a merge begins."""
    first = repo.head
    tip = grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    grow(repo, "main", "main", {"other": "x\n"})
    if recorded:
        record(repo, "a3f2", tip if recorded == "tip" else recorded)
    assert _sides(repo, "a3f2") == diff.DiffSides(first, tip)


def test_a_root_of_its_own_is_held_against_nothing(repo: Repo) -> None:
    """All of it is new."""
    tip = grow(repo, "ralph/a3f2", None, {"new": "new\n"})
    assert _sides(repo, "a3f2") == diff.DiffSides(repo.git("hash-object", "-t", "tree", "/dev/null"), tip)


def test_two_branches_are_held_against_each_other(repo: Repo) -> None:
    """From the first to the second, whatever they started from."""
    one = grow(repo, "ralph/a3f2", "main", {"new": "one\n"})
    two = grow(repo, "ralph/09be", "main", {"new": "two\n"})
    assert _sides(repo, "a3f2", "ralph/09be") == diff.DiffSides(one, two)


def test_saved_work_is_shown_if_it_is_asked_for(repo: Repo) -> None:
    """Of both branches; a branch without saved work is named."""
    base = repo.head
    one = grow(repo, "ralph/a3f2", "main", {"new": "one\n"})
    saved = grow(repo, "ralph/a3f2-wip", one, {"more": "more\n"})
    two = grow(repo, "ralph/09be", "main", {"new": "two\n"})
    assert _sides(repo, "a3f2", saved=True) == diff.DiffSides(base, saved)
    assert _sides(repo, "a3f2", "09be", saved=True) == diff.DiffSides(saved, two, ("ralph/09be",))


def test_an_iteration_is_what_it_left_to_the_next_one(repo: Repo) -> None:
    """By its session's events: a commit, or a snapshot on top of one. Another form of event is ignored."""
    base = repo.head
    commit = grow(repo, "ralph/a3f2", base, {"new": "1\n"})
    left = grow(repo, "snapshot", commit, {"new": "2\n"})
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", left)
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/2", left)
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/commit-1", left)
    repo.git("branch", "-D", "snapshot")
    session = record(repo, "a3f2", base)
    record(repo, "09be", base, branch="ralph/a3f2", began=datetime(2026, 1, 3, tzinfo=UTC))
    printed = [
        {"event": "iteration.kept", "iteration": 1, "head": commit, "snapshot": None},
        {"event": "iteration.kept", "iteration": 2, "head": commit, "snapshot": "refs/heads/main"},
        {"event": "iteration.kept", "iteration": 3, "head": left, "snapshot": None},
        {"event": "iteration.kept", "iteration": 4, "head": "1" * 40, "snapshot": None},
        {"event": "iteration.kept", "iteration": 5, "head": "--output=x", "snapshot": None},
        {"event": "iteration.kept", "iteration": "6", "head": left, "snapshot": None},
        {"event": "other", "words": '"iteration.kept"', "iteration": 7, "head": left, "snapshot": None},
    ]
    lines = [
        *map(json.dumps, printed),
        '"iteration.kept"',
        '{"event": "iteration.kept"}',
        '{"event": "iteration.kept", ',
    ]
    log = repo.path / ".ralph" / "run" / "sessions" / session / "events.jsonl"
    log.write_text("\n".join(lines))
    assert _sides(repo, "a3f2", iteration=1) == diff.DiffSides(base, commit)
    assert _sides(repo, "a3f2", iteration=2) == diff.DiffSides(commit, left)
    assert _sides(repo, "a3f2", iteration=3) == diff.DiffSides(left, left)
    for number in (-1, 0, 4, 5, 6, 7):
        with pytest.raises(NotFoundError, match=f"iteration {number} of ralph/a3f2 is not recorded"):
            _sides(repo, "a3f2", iteration=number)


def test_an_iteration_without_an_event_is_its_snapshot(repo: Repo) -> None:
    """The last one has left what its session has; that was the third, as its record says."""
    base = repo.head
    left = grow(repo, "snapshot", base, {"new": "2\n"})
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/2", left)
    repo.git("branch", "ralph/a3f2")
    assert _sides(repo, "a3f2", iteration=1) == diff.DiffSides(base, base)
    assert _sides(repo, "a3f2", iteration=2) == diff.DiffSides(base, left)
    with pytest.raises(NotFoundError):
        _sides(repo, "a3f2", iteration=3)
    record(repo, "a3f2", base)
    assert _sides(repo, "a3f2", iteration=3) == diff.DiffSides(left, base)
    with pytest.raises(NotFoundError):
        _sides(repo, "a3f2", iteration=4)


def test_the_iterations_of_a_session_are_shown(repo: Repo, script: Callable[[str], str]) -> None:
    """Those of a real one: what it commits, what it leaves, and what it does then."""
    agent = script(
        "case $RALPH_ITERATION in 1) echo 1 > one; git add one; git commit -qm one ;; *) echo 2 > two ;; esac"
    )
    done = run(repo.path, "-n", "2", "--", agent)
    agent_id = done.report["id"]
    shown = [
        command("diff", agent_id, "--iteration", str(number), cwd=repo.path).stdout.decode()
        for number in (1, 2)
    ]
    assert ["+++ b/one" in text for text in shown] == [True, False]
    assert ["+++ b/two" in text for text in shown] == [False, True]


@pytest.mark.parametrize(("other", "saved"), [("a3f2", False), (None, True)])
def test_an_iteration_goes_with_nothing_else(repo: Repo, other: str | None, saved: bool) -> None:
    """What it did is one thing, and over."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(UsageError):
        _sides(repo, "a3f2", other, iteration=1, saved=saved)


def test_git_shows_it(repo: Repo) -> None:
    """From the top of the checkout, wherever it was called."""
    tip = grow(repo, "ralph/a3f2", "main", {"sub/ü.txt": "new\n"})
    repo.write("below/here")
    done = command("diff", "a3f2", "--stat", cwd=repo.path / "below")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.decode() == repo.git("diff", "--stat", "main", tip) + "\n"


def test_a_configured_tool_shows_it(repo: Repo, script: Callable[[str], str]) -> None:
    """An external diff, say: this is its user's own terminal and configuration."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    repo.git("config", "--global", "diff.external", script('echo "shown by a tool: $1"'))
    assert command("diff", "a3f2", cwd=repo.path).stdout == b"shown by a tool: new\n"


def test_the_status_of_git_is_that_of_the_command(repo: Repo, script: Callable[[str], str]) -> None:
    """A tool that fails, and the signal that ends git."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    repo.git("config", "--global", "diff.external", script("exit 7"))
    assert command("diff", "a3f2", cwd=repo.path).status == 128
    repo.git("config", "--global", "diff.external", script("kill -TERM $PPID"))
    assert command("diff", "a3f2", cwd=repo.path).status == 128 + 15


def test_the_users_pager_has_the_terminal(repo: Repo, script: Callable[[str], str]) -> None:
    """Whichever variable names it."""
    grow(repo, "ralph/a3f2", "main", {"new": "fresh\n"})
    pager = script("[ -t 1 ] && echo on a terminal; grep -c fresh")
    with Terminal(PROGRAM, "diff", "a3f2", cwd=repo.path, env={"GIT_PAGER": pager}) as terminal:
        assert terminal.finish() == 0
        assert terminal.words == "on a terminal\n1\n"


def test_ctrl_c_is_for_the_pager(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """We wait until it and git have ended, and nothing is left of the private directory."""
    grow(repo, "ralph/a3f2", "main", {"new": "fresh\n"})
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    pager = script("trap 'echo; echo heard; exit' INT; cat; echo shown; while :; do sleep 0.05; done")
    env = {"GIT_PAGER": pager, "XDG_RUNTIME_DIR": str(runtime)}
    with Terminal(PROGRAM, "diff", "a3f2", cwd=repo.path, env=env) as terminal:
        terminal.wait_for("shown")
        assert len([*runtime.iterdir()]) == 1
        terminal.type(CTRL_C)
        terminal.wait_for("heard")
        assert terminal.finish() == 128 + signal.SIGINT
    assert [*runtime.iterdir()] == []


def test_a_branch_that_is_not_there_has_its_own_status(repo: Repo) -> None:
    """And its own word."""
    done = command("diff", "beef", cwd=repo.path)
    printed = json.loads(done.stderr)
    assert (done.status, done.stdout, printed["code"]) == (4, b"", "not_found")
    assert printed["message"] == "there is no branch ralph/beef"


def test_missing_saved_work_is_named(repo: Repo) -> None:
    """What there is is shown all the same."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    done = command("diff", "a3f2", "--saved", "--stat", cwd=repo.path)
    assert (done.status, json.loads(done.stderr)["message"]) == (0, "ralph/a3f2 has no saved work")
    assert b"1 file changed" in done.stdout


def test_a_branch_without_changes_is_a_sentence(repo: Repo) -> None:
    """No pager opens for nothing; a program gets nothing on stdout."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/09be")
    with Terminal(PROGRAM, "diff", "a3f2", cwd=repo.path, env={"PAGER": "echo pager"}) as terminal:
        assert terminal.finish() == 0
    assert terminal.words == "ralph-wrap: a3f2 has no changes\n"
    both = command("diff", "a3f2", "09be", cwd=repo.path)
    assert (both.status, both.stdout) == (0, b"")
    assert "a3f2 and 09be have the same files" in both.stderr
