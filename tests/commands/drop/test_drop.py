"""``ralph-wrap drop`` and ``restore``: what went comes back."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import drop as dropping
from ralph_wrap.commands.drop import DroppedBranch, RestoredBranch
from ralph_wrap.errors import ConflictError, NotFoundError, RefusedError, UsageError
from ralph_wrap.session.preflight import taken_ids
from ralph_wrap.state import project
from ralph_wrap.state.registry import Registry
from tests.support.histories import grow, record
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.commands.drop.dropping import NOW, drop_some, dropped_and_error, refs, restore_one

pytestmark = pytest.mark.usefixtures("trusted")

DAY = 86400.0


def _expire(repo: Repo, keep: float, now: float) -> list[str]:
    """Look twice, a day apart: the first look deletes nothing."""
    found = project.find_project(repo.path, os.environ)
    assert dropping.expire(found, keep, now) == []
    return dropping.expire(found, keep, now + DAY)


# Down and back


def test_a_merged_branch_goes_and_comes_back(repo: Repo) -> None:
    """With its saved work, which the main branch has, too."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    saved = grow(repo, "ralph/a3f2-wip", tip, {"more": "more\n"})
    before = refs(repo)
    repo.git("merge", "--quiet", "ralph/a3f2-wip")
    assert dropped_and_error(repo, "a3f2") == (
        [DroppedBranch("a3f2", "ralph/a3f2", tip, "ralph/a3f2-wip", dropped=True)],
        None,
    )
    assert refs(repo) == {"ralph/dropped/a3f2": tip, "ralph/dropped/a3f2-wip": saved}
    assert restore_one(repo, "a3f2") == RestoredBranch("a3f2", "ralph/a3f2", tip, "ralph/a3f2-wip")
    assert refs(repo) == before


def test_what_can_come_back_is_listed(repo: Repo) -> None:
    """The last drop first, with its title and the time until which it can be restored; else one sentence."""
    assert command("restore", cwd=repo.path).stdout == b"Nothing that was dropped can be restored.\n"
    for name in ("a3f2", "b3f2"):
        tip = grow(repo, f"ralph/{name}", "main", {name: "new\n"})
    grow(repo, "ralph/b3f2-wip", tip, {"more": "more\n"})
    record(repo, "a3f2", repo.head, title="Login")
    assert drop_some(repo, "a3f2", force=True, now=NOW - DAY) is None
    assert drop_some(repo, "b3f2", force=True) is None
    rows = json.loads(command("restore", "--json", cwd=repo.path).stdout)["data"]
    assert [(row["branch"], row["saved"], row["title"]) for row in rows] == [
        ("ralph/b3f2", "ralph/b3f2-wip", ""),
        ("ralph/a3f2", None, "Login"),
    ]
    for row, dropped in zip(rows, (NOW, NOW - DAY), strict=True):
        assert datetime.fromisoformat(row["dropped"]).timestamp() == int(dropped)
        assert datetime.fromisoformat(row["expires"]).timestamp() == int(dropped) + 30 * DAY
    heading, first, second = command("restore", cwd=repo.path).stdout.decode().splitlines()
    assert heading.split() == ["TITLE", "BRANCH", "TIP", "SAVED", "DROPPED", "EXPIRES"]
    assert first.split()[1:4] == ["ralph/b3f2", tip[:12], "yes"]
    assert second.split()[:2] == ["Login", "ralph/a3f2"]


def _three(repo: Repo) -> None:
    """Make a merged branch, one that is not merged, and one that is checked out."""
    grow(repo, "ralph/1111", "main", {"a": "a\n"})
    repo.git("merge", "--quiet", "ralph/1111")
    grow(repo, "ralph/2222", "main", {"b": "b\n"}, message="Not merged")
    repo.git("branch", "ralph/3333", "main")
    repo.git("worktree", "add", "--quiet", repo.path.parent / "elsewhere", "ralph/3333")


def test_all_takes_what_loses_nothing(repo: Repo) -> None:
    """Unmerged work stays without --force, as in the single form, and a branch in use: both are named."""
    _three(repo)
    result = command("drop", "--all", "--yes", cwd=repo.path)
    assert result.status == 5
    assert repo.branches() == ["main", "ralph/2222", "ralph/3333"]
    assert "ralph/3333 is checked out in " in result.stderr
    assert "kept, because their work would be lost: ralph/2222" in result.stderr
    assert "ralph-wrap drop --all --force" in result.stderr
    forced = command("drop", "--all", "--force", "--yes", cwd=repo.path)
    assert (forced.status, repo.branches()) == (0, ["main", "ralph/3333"])
    assert restore_one(repo, "2222").branch == "ralph/2222"


@pytest.mark.parametrize("answer", ["n", "y"])
def test_all_names_what_would_go_and_asks(repo: Repo, answer: str) -> None:
    """On a terminal; only a yes deletes, and what would be lost is named."""
    _three(repo)
    with Terminal(PROGRAM, "drop", "--all", "--force", cwd=repo.path) as terminal:
        terminal.wait_for("drop 2? [y/N]")
        terminal.type(answer.encode() + b"\n")
        status = terminal.finish()
    assert "  ralph/1111\n" in terminal.words
    assert "  ralph/2222  LOST: " in terminal.words
    assert " Not merged\n" in terminal.words
    dropped = answer == "y"
    assert (status, "ralph/2222" in repo.branches()) == (0 if dropped else 5, not dropped)


def test_all_drops_only_what_was_shown(repo: Repo) -> None:
    """A branch that moves while the question stands stays, and is named; one that is gone is left out."""
    _three(repo)
    repo.git("branch", "ralph/4444", "main")
    with Terminal(PROGRAM, "drop", "--all", "--force", cwd=repo.path) as terminal:
        terminal.wait_for("drop 3? [y/N]")
        repo.git("update-ref", "refs/heads/ralph/1111", "ralph/2222")
        repo.git("branch", "-D", "ralph/4444")
        terminal.type(b"y\n")
        status = terminal.finish()
    assert status == 6
    assert repo.branches() == ["main", "ralph/1111", "ralph/3333"]
    assert "ralph/1111 has moved since it was listed" in terminal.words


def test_all_asks_nothing_of_a_script(repo: Repo) -> None:
    """Without a terminal and without --yes it deletes nothing, and says which command does."""
    _three(repo)
    result = command("drop", "--all", "--force", cwd=repo.path)
    assert (result.status, result.stdout) == (2, b"")
    assert "  ralph/2222  LOST: " in result.stderr
    assert "ralph-wrap drop --all --force --yes" in result.stderr
    assert len(repo.branches()) == 4


def test_a_branch_without_an_id_goes_by_its_name_alone(repo: Repo) -> None:
    """It is never one of many."""
    repo.git("branch", "ralph/foo")
    tip = repo.head
    assert dropped_and_error(repo, merged=True) == ([], None)
    assert dropped_and_error(repo, "ralph/foo")[0] == [
        DroppedBranch(None, "ralph/foo", tip, None, dropped=True)
    ]
    assert refs(repo) == {"ralph/dropped/foo": tip}
    assert restore_one(repo, "ralph/foo") == RestoredBranch(None, "ralph/foo", tip, None)


def test_saved_work_that_is_alone_goes_and_comes_back(repo: Repo) -> None:
    """Another process has deleted its branch."""
    saved = grow(repo, "ralph/a3f2-wip", "main", {"new": "new\n"})
    assert isinstance(drop_some(repo, "a3f2"), RefusedError)
    assert drop_some(repo, "a3f2", force=True) is None
    assert refs(repo) == {"ralph/dropped/a3f2-wip": saved}
    assert restore_one(repo, "a3f2") == RestoredBranch("a3f2", None, None, "ralph/a3f2-wip")


def test_a_branch_does_not_go_because_its_saved_work_was_named(repo: Repo) -> None:
    """The name of saved work means the saved work alone, with --force or without."""
    grow(repo, "ralph/a3f2-wip", grow(repo, "ralph/a3f2", "main", {"new": "new\n"}), {"more": "more\n"})
    before = refs(repo)
    with pytest.raises(UsageError, match="ralph/a3f2-wip can only be dropped with ralph/a3f2"):
        drop_some(repo, "ralph/a3f2-wip", force=True)
    assert refs(repo) == before


# Many at once


def test_all_that_are_merged_go(repo: Repo) -> None:
    """Also those that were squashed; the others are not even named."""
    base = repo.head
    grow(repo, "ralph/0001", base, {"one": "1\n"}, {"one": "2\n"})
    grow(repo, "ralph/0002", base, {"two": "1\n"})
    grow(repo, "ralph/0003", base, {"three": "1\n"})
    repo.git("merge", "--quiet", "--squash", "ralph/0001")
    repo.commit("squashed")
    repo.git("merge", "--quiet", "--no-edit", "ralph/0003")
    rows, error = dropped_and_error(repo, merged=True)
    assert ([(row.id, row.dropped) for row in rows], error) == ([("0001", True), ("0003", True)], None)
    assert [*refs(repo)] == ["heads/ralph/0002", "ralph/dropped/0001", "ralph/dropped/0003"]


def test_age_limits_what_goes(repo: Repo) -> None:
    """It counts from the end of the session, or from the last commit if that is later."""
    repo.git("branch", "ralph/0001")
    repo.git("branch", "ralph/0002")
    ended = 1767323045  # when everything here is committed
    record(repo, "0002", repo.head, ended="2026-01-12T03:04:05+00:00")
    assert dropped_and_error(repo, merged=True, older_than=14 * DAY, now=ended + 13 * DAY) == ([], None)
    rows, _ = dropped_and_error(repo, merged=True, older_than=14 * DAY, now=ended + 15 * DAY)
    assert [row.id for row in rows] == ["0001"]
    rows, _ = dropped_and_error(repo, older_than=14 * DAY, now=ended + 25 * DAY)
    assert [row.id for row in rows] == ["0002"]


def test_age_alone_does_not_lose_anything(repo: Repo) -> None:
    """Old work is work."""
    grow(repo, "ralph/0001", "main", {"new": "1\n"})
    assert isinstance(drop_some(repo, older_than=DAY), RefusedError)


@pytest.mark.parametrize(
    ("names", "options"), [((), {}), (("a3f2",), {"merged": True}), (("a3f2",), {"empty": True})]
)
def test_which_ones_must_be_said_in_one_way(
    repo: Repo, names: tuple[str, ...], options: dict[str, bool]
) -> None:
    """Nothing is guessed."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(UsageError):
        drop_some(repo, *names, **options)


def test_a_name_that_is_not_there_stops_everything(repo: Repo) -> None:
    """Before anything is deleted."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(NotFoundError, match="beef"):
        drop_some(repo, "a3f2", "beef")
    assert "heads/ralph/a3f2" in refs(repo)


# Time


def test_what_was_dropped_is_forgotten_after_a_while(repo: Repo) -> None:
    """With the snapshots of its id; the clock of commits does not count."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/09be")
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", repo.head)
    repo.git("update-ref", "refs/ralph/snapshots/09be/1", repo.head)
    assert drop_some(repo, "a3f2", now=NOW) is None
    assert drop_some(repo, "09be", now=NOW + 20 * DAY) is None
    assert _expire(repo, 30 * DAY, NOW + 28 * DAY) == []
    assert _expire(repo, 0, NOW + 900 * DAY) == []
    assert _expire(repo, 30 * DAY, NOW + 31 * DAY) == ["ralph/a3f2"]
    assert [*refs(repo)] == ["ralph/dropped/09be", "ralph/snapshots/09be/1"]


def test_a_clock_that_was_wrong_deletes_nothing(repo: Repo) -> None:
    """It was a month ahead for a moment; what is due is due again a day later, by a clock that went on."""
    repo.git("branch", "ralph/a3f2")
    assert drop_some(repo, "a3f2", now=NOW) is None
    found = project.find_project(repo.path, os.environ)
    wrong, right = NOW + 31 * DAY, NOW + DAY
    for now in (wrong, wrong + 60, right, wrong, wrong + DAY - 60):
        assert dropping.expire(found, 30 * DAY, now) == []
    assert dropping.expire(found, 30 * DAY, wrong + DAY) == ["ralph/a3f2"]


def test_snapshots_of_a_branch_that_is_there_again_stay(repo: Repo) -> None:
    """They are its own."""
    repo.git("branch", "ralph/a3f2")
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", repo.head)
    assert drop_some(repo, "a3f2") is None
    repo.git("branch", "ralph/a3f2")
    assert _expire(repo, DAY, NOW + 2 * DAY) == ["ralph/a3f2"]
    assert [*refs(repo)] == ["heads/ralph/a3f2", "ralph/snapshots/a3f2/1"]


def test_snapshots_of_a_session_that_is_not_finished_stay(repo: Repo) -> None:
    """Its branch has another name: another session made ralph/a3f2, and the user dropped it."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    repo.git("branch", "ralph/a3f2")
    assert drop_some(repo, "a3f2") is None
    (home.agents / "a3f2.json").write_text("{")
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", repo.head)
    assert _expire(repo, DAY, NOW + 2 * DAY) == ["ralph/a3f2"]
    assert [*refs(repo)] == ["ralph/snapshots/a3f2/1"]


def test_the_time_counts_from_the_last_time_that_something_was_dropped(repo: Repo) -> None:
    """The user has brought it back by hand, or a drop was killed half-way long ago."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/a3f2-wip")
    assert drop_some(repo, "a3f2", now=NOW - 40 * DAY) is None
    repo.git("branch", "ralph/a3f2", "refs/ralph/dropped/a3f2")
    repo.git("branch", "ralph/a3f2-wip", "refs/ralph/dropped/a3f2")
    assert drop_some(repo, "a3f2") is None
    assert _expire(repo, 30 * DAY, NOW + 29 * DAY) == []
    assert refs(repo) == {"ralph/dropped/a3f2": repo.head, "ralph/dropped/a3f2-wip": repo.head}


def test_what_was_dropped_at_an_unknown_time_is_kept(repo: Repo) -> None:
    """The user has deleted the reflog, or made the ref by hand."""
    repo.git("update-ref", "refs/ralph/dropped/a3f2", repo.head)
    assert _expire(repo, DAY, NOW + 900 * DAY) == []
    assert [*refs(repo)] == ["ralph/dropped/a3f2"]


# Back


@pytest.mark.parametrize("words", [("diff",), ("merge",), ("apply",), ("drop",), ("review", "--pr")])
def test_a_command_for_a_dropped_branch_names_restore(repo: Repo, words: tuple[str, ...]) -> None:
    """With the command that brings it back."""
    grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    assert drop_some(repo, "a3f2", force=True) is None
    refused = command(*words, "a3f2", cwd=repo.path)
    assert (refused.status, "branch ralph/a3f2 was dropped" in refused.stderr) == (4, True), refused.stderr
    assert "to bring it back: ralph-wrap restore a3f2" in refused.stderr
    assert command("restore", "a3f2", cwd=repo.path).status == 0


def test_a_branch_that_was_not_dropped_is_not_to_be_renamed(repo: Repo) -> None:
    """There is nothing to make room for."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(ConflictError, match="it was not dropped") as caught:
        restore_one(repo, "a3f2")
    assert caught.value.hint == "to see what it changes: ralph-wrap diff a3f2"


def test_a_branch_in_the_way_can_be_renamed_whatever_it_is_called(repo: Repo) -> None:
    """Pasted, the command makes room."""
    for ref in ("refs/ralph/dropped-branches/-M", "refs/heads/-M"):
        repo.git("update-ref", ref, "HEAD")
    with pytest.raises(ConflictError) as caught:
        restore_one(repo, "-M")
    way = caught.value.hint.partition("to rename it: ")[2].replace("NAME", "mine")
    subprocess.run(("sh", "-c", way), cwd=repo.path, check=True)
    assert restore_one(repo, "-M").branch == "-M"


def test_nothing_is_brought_back_over_a_branch(repo: Repo) -> None:
    """Whatever is there under the name by now."""
    repo.git("branch", "ralph/a3f2")
    assert drop_some(repo, "a3f2") is None
    later = grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    with pytest.raises(ConflictError, match="branch ralph/a3f2 already exists"):
        restore_one(repo, "a3f2")
    assert refs(repo)["heads/ralph/a3f2"] == later


@pytest.mark.parametrize("name", ["a3f2", "ralph/a3f2", "", "../heads/main", "a3f2-wip", "*"])
def test_what_was_not_dropped_does_not_come_back(repo: Repo, name: str) -> None:
    """A name is no pattern, and no path."""
    with pytest.raises(NotFoundError):
        restore_one(repo, name)


def test_an_id_is_not_given_away_while_it_can_come_back(repo: Repo) -> None:
    """Or its branch would be in the way."""
    repo.git("branch", "ralph/a3f2")
    assert drop_some(repo, "a3f2") is None
    found_project = project.find_project(repo.path, os.environ)
    assert (taken_ids(found_project, "a3f2"), taken_ids(found_project)) == (
        {"a3f2"},
        {"a3f2"},
    )


@pytest.mark.parametrize("name", ["1", "commit-1"])
def test_an_id_is_not_given_away_while_there_are_snapshots_of_it(repo: Repo, name: str) -> None:
    """Snapshots of two sessions would look alike."""
    repo.git("update-ref", f"refs/ralph/snapshots/a3f2/{name}", "HEAD")
    found_project = project.find_project(repo.path, os.environ)
    assert [taken_ids(found_project, *one) for one in [("a3f2",), ()]] == [{"a3f2"}] * 2


# The commands


def test_the_commands_answer_in_json(repo: Repo) -> None:
    """What was refused is in the answer, too."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="work")
    refused = command("drop", "a3f2", "--json", cwd=repo.path)
    answer = json.loads(refused.stdout)
    assert (refused.status, answer["success"], answer["error"]["code"]) == (5, False, "refused")
    assert answer["data"][0]["lost"] == [f"{tip[:12]} work"]
    forced = command("drop", "a3f2", "--json", "--force", cwd=repo.path)
    assert (forced.status, json.loads(forced.stdout)["data"][0]["dropped"]) == (0, True)
    back = command("restore", "a3f2", "--json", cwd=repo.path)
    assert json.loads(back.stdout) == {
        "version": 1,
        "success": True,
        "tool": "restore",
        "data": {"id": "a3f2", "branch": "ralph/a3f2", "tip": tip, "saved": None, "title": ""},
    }


def test_the_commands_answer_in_words(repo: Repo) -> None:
    """A line each; what has expired is listed beside it."""
    (repo.path / ".ralph").mkdir()
    (repo.path / ".ralph" / "config.toml").write_text('keep_dropped = "1ms"\n')
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/09be")
    done = command("drop", "a3f2", cwd=repo.path)
    assert (done.status, done.stdout.decode()) == (0, f"ralph/a3f2  dropped at {repo.head[:12]}\n")
    done = command("drop", "--older-than", "1s", cwd=repo.path)
    assert done.stdout.decode() == f"ralph/09be  dropped at {repo.head[:12]}\n"
    again = command("drop", "--older-than", "1s", cwd=repo.path)
    printed = [json.loads(line)["message"] for line in again.stderr.splitlines()]
    assert "ralph/a3f2, which was dropped earlier, can no longer be restored" in printed
    assert command("restore", "a3f2", cwd=repo.path).status == 4


def test_an_age_that_is_none_is_a_mistake(repo: Repo) -> None:
    """Nothing is dropped."""
    repo.git("branch", "ralph/a3f2")
    assert command("drop", "--older-than", "old", cwd=repo.path).status == 2
    assert repo.branches() == ["main", "ralph/a3f2"]


def test_each_that_is_kept_is_listed_with_a_hint(repo: Repo) -> None:
    """For people a line and a hint each, the others go; for programs one error."""
    for number in (1, 2, 3):
        grow(repo, f"ralph/000{number}", "main", {f"new-{number}": "1\n"})
    repo.git("merge", "-q", "--ff-only", "ralph/0003")
    refused = command("drop", "0001", "0002", "0003", cwd=repo.path)
    assert refused.status == RefusedError.exit_code
    assert refused.stdout.startswith(b"ralph/0003  dropped at ")
    for number in (1, 2):
        (line,) = [
            line
            for line in refused.stderr.splitlines()
            if f"ralph/000{number} kept, this would be lost: " in line
        ]
        entry = json.loads(line)
        others = {1, 2, 3} - {number}
        assert not [other for other in others if f"000{other}" in f"{entry['message']} {entry['hint']}"]
        assert f"ralph-wrap drop --force 000{number}" in refused.stderr
    printed = json.loads(command("drop", "0001", "0002", "--json", cwd=repo.path).stdout)
    assert printed["error"]["message"] == "; ".join(row["kept"] for row in printed["data"])
