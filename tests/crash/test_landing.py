"""A merge that is killed, or whose git is, or whose disk is full, at any point: nothing is lost.

After it the target is where it was or where it was to go, and the next merge has everything as it should be.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.git_shim import deadly_filter, deadly_git
from tests.support.merging import branch, files_of, project_with_files
from tests.support.repo import Repo
from tests.support.sessions import Result
from tests.support.wait import CAP

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer


MINE = {"mine": b"the user's own\n", "new/mine.log": b"ignored\n"}
"""Files that git does not know."""


class Yard(NamedTuple):
    """A repository in which a branch is to land, by a merge commit, in a checkout that is clean.

    Attributes:
        directory: everything that belongs to it.
        program: what runs the commands.

    """

    directory: Path
    program: ForkServer

    @classmethod
    def make(cls, directory: Path, program: ForkServer, driver: str) -> Yard:
        """Make one."""
        directory.mkdir()
        repo = project_with_files(directory / "project")
        repo.write(".gitignore", "*.log\n.ralph/\n")
        repo.write(".gitattributes", "*.deadly filter=deadly\n")
        repo.write("same.deadly", "as it was\n")
        for direction in ("clean", "smudge"):
            repo.git("config", "--global", f"filter.deadly.{direction}", driver)
        repo.commit("attributes")
        kinds: dict[str, str | None] = {"gone": None, "gone/x": "x\n", "new/a": "A\n", "one/two/three": None}
        branch(repo, "aaaa", kinds | {"file.txt": "one\nA\n", "same.deadly": "changed\n"})
        repo.write("other", "mine\n")
        repo.commit("mine")
        for path, content in MINE.items():
            repo.write(path, content)
        return cls(directory, program)

    @property
    def repo(self) -> Repo:
        """The project."""
        return Repo(self.directory / "project")

    @property
    def reached(self) -> list[str]:
        """The points that the latest command has reached, by name."""
        return (self.directory / "points").read_text(errors="replace").splitlines()

    @property
    def states(self) -> list[str]:
        """What a kill at each of them would have left; of a command with the fault ``watch``."""
        return (self.directory / "points.states").read_text().splitlines()

    def copy(self, directory: Path) -> Yard:
        """Return the same yard in a new directory."""
        shutil.copytree(self.directory, directory, symlinks=True)
        return self._replace(directory=directory)

    def merge(self, fault: str = "count", number: int = 0, *, command: str = "merge", **env: str) -> Result:
        """Land the branch, or do something else with it, and meet a fault meanwhile."""
        points = self.directory / "points"
        points.unlink(missing_ok=True)
        done = self.program.run(
            command,
            "aaaa",
            cwd=self.repo.path,
            environ={**os.environ, **env},
            patience=CAP * 3,
            fault=(points, fault, number),
        )
        return Result(done.status, done.stdout, done.stderr.decode(errors="replace"), None)

    def look(self) -> dict[str, Any]:
        """Return what a user sees."""
        return {
            "files": files_of(self.repo.path),
            "tree": self.repo.git("rev-parse", "main^{tree}"),
            "status": self.repo.git("status", "--porcelain"),
            "fsck": self.repo.git("fsck", "--no-dangling"),
        }

    def remains(self) -> list[str]:
        """Return what must not be there once a merge has ended."""
        git_dir, ours = self.repo.path / ".git", self.repo.path / ".ralph" / "run"
        found = (*git_dir.glob("worktrees/*"), *git_dir.rglob("*.lock"), *ours.glob("landing*/*"))
        return [path.name for path in (*found, *ours.glob("landing.json"))]


class Reference(NamedTuple):
    """A yard before and after an undisturbed merge, and the points of this merge with their states."""

    fresh: Yard
    before: dict[str, Any]
    after: dict[str, Any]
    points: list[str]
    states: list[str]

    @classmethod
    def make(cls, tmp_path: Path, program: ForkServer, fault: str) -> Reference:
        """Make it."""
        fresh = Yard.make(tmp_path / "fresh", program, deadly_filter(tmp_path / "filter"))
        ended = fresh.copy(tmp_path / "ended")
        assert ended.merge(fault).status == 0
        assert ended.remains() == []
        after = ended.look()
        assert {path: after["files"][path][1] for path in MINE} == MINE
        states = ended.states if fault == "watch" else []
        return cls(fresh, fresh.look(), after, ended.reached, states)

    def check(self, yard: Yard, at: str) -> None:
        """Fail unless nothing of the user's is lost, and the next merge does what this one should have."""
        there = yard.look()
        files = there["files"]
        assert {path: files[path][1] for path in MINE} == MINE, at
        assert there["tree"] in {self.before["tree"], self.after["tree"]}, at
        assert there["fsck"] == "", at
        unknown = {path for path, entry in files.items() if entry[1] and not self._is_known(path, entry)}
        assert unknown == set(), at
        second = yard.merge()
        assert second.status == 0, f"{at}: {second.stdout!r} {second.stderr}"
        assert yard.look() == self.after, at
        assert yard.remains() == [], at

    def _is_known(self, path: str, entry: Any) -> bool:
        """Return whether a file is as it was, or as it is to be, or a beginning of the latter."""
        whole = [side["files"][path][1] for side in (self.before, self.after) if path in side["files"]]
        return any(content.startswith(entry[1]) for content in whole)


@pytest.mark.timeout(300)
def test_a_merge_killed_at_any_point_is_undone_or_done(
    tmp_path: Path, program: ForkServer, choose: Choose
) -> None:
    """Not even git's own locks are left behind."""
    reference = Reference.make(tmp_path, program, "watch")
    first = next(
        position for position, name in enumerate(reference.points, 1) if name.startswith("os.mkdir ")
    )
    # Before the first one nothing is changed.
    for number in choose(len(reference.points), first=first, each=12, states=reference.states):
        at = f"kill {number}: {reference.points[number - 1]}"
        yard = reference.fresh.copy(tmp_path / f"kill-{number}")
        assert yard.merge("kill", number).status == -signal.SIGKILL, at
        reference.check(yard, at)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["git-before", "git-after"])
def test_git_killed_at_any_call_of_a_merge(
    tmp_path: Path, program: ForkServer, fault: str, choose: Choose
) -> None:
    """The merge goes on or says why it cannot; the next one does it."""
    reference = Reference.make(tmp_path, program, fault)
    env = {"PATH": deadly_git(tmp_path / "bin")}
    changing = next(position for position, name in enumerate(reference.points) if " reset --hard " in name)
    for number in choose(len(reference.points), first=changing + 1, each=15):
        point = reference.points[number - 1]
        yard = reference.fresh.copy(tmp_path / f"{fault}-{number}")
        first = yard.merge(fault, number, **env)
        at = f"{fault} {number}: {point}: {first.stderr}"
        assert first.status in {0, 3, 4, 6, 125}, at
        assert "Traceback" not in first.stderr, at
        assert yard.look() in (
            [reference.after] if first.status == 0 else [reference.before, reference.after]
        ), at
        reference.check(yard, at)


def test_git_killed_in_the_middle_of_a_checkout(tmp_path: Path, program: ForkServer) -> None:
    """Some files are there, others are gone, the index is the old one: all of it goes back at once."""
    reference = Reference.make(tmp_path, program, "git-before")
    env = {"PATH": deadly_git(tmp_path / "bin")}
    (number,) = [number for number, name in enumerate(reference.points, 1) if " read-tree -m -u " in name]
    yard = reference.fresh.copy(tmp_path / "yard")
    first = yard.merge("git-middle", number, **env)
    assert first.status == 6, first.stderr
    assert yard.look() == reference.before, first.stdout
    reference.check(yard, "read-tree")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["ENOSPC"])
def test_a_failed_write_is_reported_and_nothing_moves(
    tmp_path: Path, program: ForkServer, fault: str, choose: Choose
) -> None:
    """For any file of ours."""
    reference = Reference.make(tmp_path, program, fault)
    for number in choose(len(reference.points), each=20):
        point = reference.points[number - 1]
        yard = reference.fresh.copy(tmp_path / f"{fault}-{number}")
        first = yard.merge(fault, number)
        at = f"{fault} {number}: {point}: {first.stderr}"
        assert "please report this" not in first.stderr, at
        assert yard.look() in (reference.before, reference.after), at
        reference.check(yard, at)


def test_a_killed_merge_leaves_something(tmp_path: Path, program: ForkServer) -> None:
    """Negative control: before the next merge, the proof fails."""
    reference = Reference.make(tmp_path, program, "kill")
    number = next(position for position, name in enumerate(reference.points, 1) if " update-ref -m " in name)
    yard = reference.fresh.copy(tmp_path / "yard")
    assert yard.merge("kill", number).status == -signal.SIGKILL
    assert yard.look() not in (reference.before, reference.after)
    assert yard.remains() != []


def _killed_before_the_branch_moves(tmp_path: Path, program: ForkServer) -> tuple[Reference, Yard]:
    """Return a yard in which files and index are as they were to be, and the branch is not."""
    reference = Reference.make(tmp_path, program, "kill")
    number = next(position for position, name in enumerate(reference.points, 1) if " update-ref -m " in name)
    yard = reference.fresh.copy(tmp_path / "yard")
    assert yard.merge("kill", number).status == -signal.SIGKILL
    return reference, yard


def test_work_on_what_a_killed_merge_has_left_is_kept(tmp_path: Path, program: ForkServer) -> None:
    """A warning says so, and nothing goes back; the work is uncommitted, so nothing lands either."""
    _, yard = _killed_before_the_branch_moves(tmp_path, program)
    yard.repo.write("file.txt", "mine, since then\n")
    before = yard.look()
    second = yard.merge()
    assert (second.status, yard.look()) == (6, before), second.stderr
    assert "was changed meanwhile, and these files stay: file.txt" in second.stderr


def test_a_commit_of_what_a_killed_merge_has_left_stays(tmp_path: Path, program: ForkServer) -> None:
    """The branch has moved: nothing goes back under it."""
    reference, yard = _killed_before_the_branch_moves(tmp_path, program)
    yard.repo.git("commit", "-q", "-m", "by hand")
    assert yard.merge().status == 0
    there = yard.look()
    assert (there["files"], there["status"]) == (reference.after["files"], reference.after["status"])
    assert yard.remains() == []


def test_an_apply_killed_at_any_point_is_done_by_the_next(
    tmp_path: Path, program: ForkServer, choose: Choose
) -> None:
    """Files that have changed already are as they should be; nothing is staged, and nothing left."""
    fresh = Yard.make(tmp_path / "fresh", program, deadly_filter(tmp_path / "filter"))
    saved: dict[str, str | None] = {"file.txt": "one\nA\n", "saved": "new\n", "run.sh": None}
    branch(fresh.repo, "aaaa-wip", saved, base="main")
    ended = fresh.copy(tmp_path / "ended")
    assert ended.merge("watch", command="apply").status == 0
    after, points = ended.look(), ended.reached
    assert (after["status"], ended.remains()) == (" M file.txt\n D run.sh\n?? mine\n?? saved", [])
    first = next(position for position, name in enumerate(points, 1) if name.startswith("os.mkdir "))
    for number in choose(len(points), first=first, each=12, states=ended.states):
        at = f"kill {number}: {points[number - 1]}"
        yard = fresh.copy(tmp_path / f"kill-{number}")
        assert yard.merge("kill", number, command="apply").status == -signal.SIGKILL, at
        assert yard.look() in (fresh.look(), after), at
        second = yard.merge(command="apply")
        assert (second.status, yard.look(), yard.remains()) == (0, after, []), f"{at}: {second.stderr}"
