"""Files outside a workspace: reading git's answer, comparing two looks, counting the changes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap import git
from ralph_wrap.git import Git
from ralph_wrap.git.status import parse_entries
from ralph_wrap.state import landings
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.log import Log
from ralph_wrap.worktree.leaks.compare import changed_keys, compare
from ralph_wrap.worktree.leaks.monitor import LeakMonitor
from ralph_wrap.worktree.leaks.observation import Observation, ObservedCheckout, RunningObservation
from tests.support.cancelling import cancelled
from tests.support.git_shim import shim_git
from tests.support.repo import make_repo

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from tests.support.repo import Repo

OID = "0123456789abcdef0123456789abcdef01234567"
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def row(kind: str, path: str) -> str:
    """Return what git prints of a path."""
    if kind == "?":
        return f"? {path}"
    if kind == "u":
        return f"u UU N... 100644 100644 100644 100644 {OID} {OID} {OID} {path}"
    return f"1 {kind} N... 100644 100644 100644 {OID} {OID} {path}"


@given(st.dictionaries(PATHS, st.sampled_from(["?", "u", ".M", "A.", "D."])))
def test_whatever_a_path_is_like_it_comes_back(rows: Mapping[str, str]) -> None:
    """Blanks, newlines and arrows in it, and what looks like a further row."""
    output = "".join(f"{row(kind, path)}\0" for path, kind in rows.items())
    found = parse_entries(output.encode())
    assert {path: state.split()[0] for path, state in found.items()} == {
        path: "UU" if kind == "u" else kind for path, kind in rows.items()
    }


@given(st.binary())
def test_no_answer_breaks_the_reader_but_by_a_value_error(output: bytes) -> None:
    """Which costs one look, and not the session."""
    try:
        parse_entries(output)
    except ValueError:
        return


@dataclass
class Room:
    """A repository, and a lookout whose narration is kept."""

    repo: Repo
    checkout: ObservedCheckout
    narrated: Path

    def look(self) -> Observation:
        """Look once."""
        with RunningObservation(self.checkout) as looking:
            return looking.result()

    def changes(self, before: Observation, landed: Collection[landings.Landing] = ()) -> list[str]:
        """Return what has changed since a look."""
        found = compare(
            before,
            self.look(),
            lambda earlier, other: changed_keys(self.checkout.git, earlier, other),
            landed,
        )
        return [change.words for change in found]


@pytest.fixture
def room(repo: Repo, tmp_path: Path) -> Room:
    """Return a repository that can be looked at."""
    where = Git(repo.path, git.git_environment(os.environ))
    workspace = repo.path / ".ralph" / "worktrees" / "20260102T030405Z-a3f2"
    checkout = ObservedCheckout.at(where, repo.path, repo.path / ".git", workspace, "ralph/a3f2")
    return Room(repo, checkout, tmp_path / "narrated")


@contextmanager
def narrated(room: Room) -> Iterator[None]:
    """Have the messages go into a file."""
    with room.narrated.open("wb") as file, Log(file.fileno(), terminal=False, colour=False).in_use():
        yield


def leak_monitor(room: Room, *, stopped: bool = False) -> LeakMonitor:
    """Return what looks outside."""
    return LeakMonitor(
        Git(room.repo.path, git.git_environment(os.environ)),
        root=room.repo.path,
        run=room.repo.path / ".ralph/run",
        common_dir=room.repo.path / ".git",
        workspace=room.checkout.workspace,
        branch="ralph/a3f2",
        cancel=cancelled() if stopped else NEVER,
    )


@pytest.mark.parametrize(
    "ref",
    ["refs/heads/ralph/a3f2", "refs/heads/ralph/beef-wip", "refs/ralph/snapshots/beef/1", "refs/remotes/o/x"],
)
def test_refs_that_do_not_count(room: Room, ref: str) -> None:
    """Created, moved, deleted."""
    first = room.repo.head
    second = room.repo.commit("second")
    seen = room.look()
    for oid in (first, second):
        room.repo.git("update-ref", ref, oid)
        assert room.changes(seen) == []
        seen = room.look()
    room.repo.git("update-ref", "-d", ref)
    assert room.changes(seen) == []


@pytest.mark.parametrize(
    "ref", ["refs/heads/ralphs", "refs/heads/topic", "refs/tags/ralph/a3f2", "refs/other/x"]
)
def test_refs_that_count(room: Room, ref: str) -> None:
    """Negative control: names that are nearly the same."""
    seen = room.look()
    room.repo.git("update-ref", ref, room.repo.head)
    assert len(room.changes(seen)) == 1


def test_what_a_merge_has_landed_does_not_count(room: Room) -> None:
    """Branch and checkout move, by one landing or several; what another process moves in between does."""
    repo = room.repo
    run = repo.path / ".ralph" / "run"
    run.mkdir(parents=True)
    seen, first = room.look(), repo.head
    repo.write("file.txt", "second\n")
    second = repo.commit("second")
    third = repo.commit("third")
    landings.note(run, "refs/heads/main", first, second)
    printed = [f"branch main moved from {first[:7]} to {third[:7]}"]
    assert room.changes(seen, landings.read(run).known) == printed
    landings.note(run, "refs/heads/other", second, third)
    assert room.changes(seen, landings.read(run).known) == printed
    landings.note(run, "refs/heads/main", second, third)
    assert room.changes(seen, landings.read(run).known) == []


def test_a_look_in_the_middle_of_a_landing_is_taken_again(room: Room, tmp_path: Path) -> None:
    """What it saw is on its way."""
    run = room.repo.path / ".ralph" / "run"
    run.mkdir(parents=True)
    (run / landings.IN_PROGRESS).touch()
    cases = f"""*" status "*)
    if mkdir {tmp_path}/once 2>/dev/null; then
        echo half >file.txt; "$REAL" "$@"; status=$?
        echo one >file.txt; rm {run}/{landings.IN_PROGRESS}; exit $status
    fi ;;"""
    with narrated(room):
        watching = leak_monitor(room)
        with watching:
            pass
        path = shim_git(tmp_path / "bin", cases)
        watching._git = watching._git._replace(env={**os.environ, "PATH": path})  # noqa: SLF001
        watching._checkout = None  # noqa: SLF001
        assert not watching.look("in iteration 1")
    assert watching.found == ()


@pytest.mark.parametrize("content", [b"{", b"[1]\n", b"\xff\n", b"[[]]\n"])
def test_landings_that_cannot_be_read_are_said(room: Room, content: bytes) -> None:
    """Then every change is reported, and the next landing is noted all the same."""
    room.repo.write(".ralph/run/landings.jsonl", content)
    with narrated(room), leak_monitor(room) as looking:
        looking.look("in iteration 1")
    assert b"a line of " in room.narrated.read_bytes()
    run = room.repo.path / ".ralph/run"
    landings.note(run, "refs/heads/main", "a", "b")
    assert landings.read(run) == (frozenset({("refs/heads/main", "a", "b")}), "")


def test_a_file_of_landings_that_cannot_be_read_is_said(room: Room) -> None:
    """It is not taken for an empty one, by no session and by no landing."""
    (room.repo.path / ".ralph/run/landings.jsonl").mkdir(parents=True)
    with narrated(room), leak_monitor(room) as looking:
        looking.look("in iteration 1")
    assert b"landings.jsonl cannot be read" in room.narrated.read_bytes()
    with pytest.raises(OSError, match=r"landings\.jsonl"):
        landings.note(room.repo.path / ".ralph/run", "refs/heads/main", "a", "b")


def test_a_conflict(room: Room) -> None:
    """The user merges in the main checkout."""
    repo = room.repo
    repo.git("switch", "-q", "-c", "side")
    repo.write("file.txt", "side\n")
    repo.commit("side")
    repo.git("switch", "-q", "main")
    repo.write("file.txt", "main\n")
    repo.commit("main")
    seen = room.look()
    repo.git("merge", "-q", "side", check=False)
    assert room.changes(seen) == ["file.txt (modified)"]


def test_no_commit_and_the_first_one(tmp_path: Path) -> None:
    """A branch that is not born yet is checked out."""
    repo = make_repo(tmp_path / "empty", empty=True)
    where = Git(repo.path, git.git_environment(os.environ))
    checkout = ObservedCheckout.at(
        where, repo.path, repo.path / ".git", repo.path / "elsewhere", "ralph/a3f2"
    )
    empty = Room(repo, checkout, tmp_path)
    seen = empty.look()
    assert (seen.head, seen.commit) == ("refs/heads/main", "")
    repo.write("file.txt")
    repo.commit()
    assert empty.changes(seen) == [f"branch main created at {repo.head[:7]}"]


def test_nothing_is_written(room: Room) -> None:
    """Not even git's index, whose times a checkout of files with new times would have refreshed."""
    os.utime(room.repo.path / "file.txt", (1, 1))
    index = room.repo.path / ".git" / "index"
    before = index.stat()
    room.look()
    after = index.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_a_limited_number_of_dirty_files_is_followed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others it is seen that they come and go."""
    monkeypatch.setattr("ralph_wrap.worktree.leaks.observation._LOOKED_AT", 2)
    for name in "abc":
        room.repo.write(name, "x")
    seen = room.look()
    for name in "abc":
        room.repo.write(name, "longer")
    (room.repo.path / "d").touch()
    assert room.changes(seen) == ["a (modified)", "b (modified)", "d (new)"]


def test_a_long_session_has_a_bounded_report(room: Room) -> None:
    """A hundred lines, and a count of the others."""
    with narrated(room):
        looking = leak_monitor(room)
        with looking:
            pass
        for number in range(103):
            room.repo.write("new", "x" * number)
            assert looking.look(f"during iteration {number}")
    assert len(looking.found) == 101
    assert looking.found[::50] == (
        "during iteration 0: new (new)",
        "during iteration 50: new (modified)",
        "and 3 more: see events.jsonl",
    )


def test_a_hanging_git_delays_no_end(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a signal has come before the start, nothing is waited for or reported."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" status "*) exec sleep 600 ;;'))
    with narrated(room):
        looking = leak_monitor(room, stopped=True)
        with looking:
            pass
    assert (looking.found, room.narrated.read_bytes()) == ((), b"")


def test_a_git_that_hangs_for_good_is_given_up(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session begins, and says that nothing can be seen."""
    monkeypatch.setattr("ralph_wrap.worktree.leaks.monitor._PATIENCE", 0.1)
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" status "*) exec sleep 600 ;;'))
    with narrated(room), leak_monitor(room) as looking:
        pass
    assert b"cannot look for changes outside the worktree: git takes too long" in room.narrated.read_bytes()
    assert looking.found == ("not known: git takes too long",)


def test_a_started_observation_is_compared_once(room: Room) -> None:
    """Without a start there is nothing to compare."""
    with narrated(room), leak_monitor(room) as looking:
        pass
    (room.repo.path / "late.txt").write_text("x")
    assert not looking.finish_look("during iteration 1")
    looking.start_look()
    assert looking.finish_look("during iteration 2")
    assert not looking.finish_look("during iteration 3")
    assert looking.found == ("during iteration 2: late.txt (new)",)
