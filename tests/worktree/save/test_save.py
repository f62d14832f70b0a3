"""What a worktree holds besides its branch is saved in full, before anything is removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.save import trees
from tests.support.trees import ID, WIP, Tree, edit_while_staging, in_git, on_disk

if TYPE_CHECKING:
    from collections.abc import Callable


def _staged(top: Path) -> None:
    (top / "file.txt").write_text("staged\n")


def _deleted(top: Path) -> None:
    (top / "file.txt").unlink()


def _directory_deleted(top: Path) -> None:
    shutil.rmtree(top / "dir")


def _renamed(top: Path) -> None:
    (top / "file.txt").rename(top / "other.txt")


def _mode_changed(top: Path) -> None:
    (top / "file.txt").chmod(0o755)
    (top / "run.sh").chmod(0o644)


def _symlinks(top: Path) -> None:
    (top / "link").unlink()
    (top / "link").symlink_to("nowhere")
    (top / "new-link").symlink_to("/etc/passwd")
    (top / "dir-link").symlink_to("dir")


def _file_becomes_directory(top: Path) -> None:
    (top / "file.txt").unlink()
    (top / "file.txt").mkdir()
    (top / "file.txt" / "inner").write_text("in\n")


def _untracked(top: Path) -> None:
    (top / "new").mkdir()
    (top / "new" / "empty").touch()
    (top / "new" / "white space\nand\tmore").write_bytes(b"\0\xff\r\n")
    Path(os.fsdecode(os.fsencode(top) + b"/not-utf8-\xff")).write_text("x")


def _binary(top: Path) -> None:
    (top / "binary").write_bytes(bytes(reversed(range(256))) * 4000)


CHANGES = [
    _staged,
    _deleted,
    _directory_deleted,
    _renamed,
    _mode_changed,
    _symlinks,
    _file_becomes_directory,
    _untracked,
    _binary,
]


@pytest.mark.parametrize("staged", [False, True], ids=["unstaged", "staged"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_every_kind_of_change_comes_back(tree: Tree, change: Callable[[Path], None], *, staged: bool) -> None:
    """The saved tree is the directory, byte for byte, whatever was done with the index."""
    change(tree.path)
    if staged:
        tree.inside.git("add", "--all")
    before = on_disk(tree.path)
    head = tree.inside.head
    outcome = tree.finish()
    assert outcome.kept is None
    assert outcome.saved is not None
    assert outcome.saved.branch == WIP
    assert in_git(tree.repo, WIP) == before
    assert tree.repo.git("rev-parse", f"{WIP}^1") == head
    assert not tree.path.exists()
    assert tree.repo.worktrees() == []


def test_nothing_to_save_makes_no_branch(tree: Tree) -> None:
    """A clean worktree leaves only its branch."""
    outcome = tree.finish()
    assert (outcome.kept, outcome.saved and outcome.saved.branch) == (None, None)
    assert tree.repo.branches() == ["main", f"ralph/{ID}"]


def test_an_index_of_its_own_is_the_second_parent(tree: Tree) -> None:
    """What was staged and then changed again is not lost, as with git stash."""
    (tree.path / "file.txt").write_text("staged\n")
    tree.inside.git("add", "file.txt")
    (tree.path / "file.txt").write_text("on disk\n")
    tree.finish()
    assert tree.repo.show(f"{WIP}:file.txt") == b"on disk\n"
    assert tree.repo.show(f"{WIP}^2:file.txt") == b"staged\n"


def test_a_file_staged_and_deleted_is_the_second_parent(tree: Tree) -> None:
    """A staged file that is gone from the disk exists nowhere else."""
    tree.inside.write("only-staged", "precious\n")
    tree.inside.git("add", "only-staged")
    (tree.path / "only-staged").unlink()
    tree.finish()
    assert tree.repo.show(f"{WIP}^2:only-staged") == b"precious\n"


def test_git_stash_apply_brings_files_and_index_back(tree: Tree) -> None:
    """A user with plain git gets the exact state back, staged and not."""
    tree.inside.write("staged", "s\n")
    tree.inside.git("add", "staged")
    (tree.path / "file.txt").write_text("unstaged\n")
    tree.inside.write("dir/untracked", "u\n")
    before = on_disk(tree.path)
    tree.finish()
    fresh = tree.repo.path.parent / "fresh"
    tree.repo.git("worktree", "add", "-q", fresh, f"ralph/{ID}")
    tree.repo.git("stash", "apply", "--index", WIP, cwd=fresh)
    assert on_disk(fresh) == before
    assert tree.repo.git("diff", "--cached", "--name-only", cwd=fresh) == "staged"


HIDING = {
    "assume-unchanged": ["update-index", "--assume-unchanged", "file.txt"],
    "skip-worktree": ["update-index", "--skip-worktree", "file.txt"],
    "checkStat": ["config", "core.checkStat", "minimal"],
    "trustctime": ["config", "core.trustctime", "false"],
    "ignoreStat": ["config", "core.ignoreStat", "true"],
    "showUntrackedFiles": ["config", "status.showUntrackedFiles", "no"],
    "untrackedCache": ["config", "core.untrackedCache", "true"],
    "safecrlf": ["config", "core.safecrlf", "true"],
    "splitIndex": ["update-index", "--split-index"],
}


@pytest.mark.parametrize("hiding", HIDING)
def test_no_setting_hides_a_change(tree: Tree, hiding: str) -> None:
    """A changed and a new file are saved although a setting makes git overlook them."""
    tree.inside.git(*HIDING[hiding])
    (tree.path / "file.txt").write_text("hidden\n")
    tree.inside.write("new\nfile", "hidden too\n")
    before = on_disk(tree.path)
    assert tree.finish().kept is None
    assert in_git(tree.repo, WIP) == before


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_git_alone_would_have_lost_a_flagged_file(tree: Tree, flag: str) -> None:
    """The control for the test above: unforced removal by git deletes the edit without a word."""
    tree.inside.git("update-index", flag, "file.txt")
    (tree.path / "file.txt").write_text("hidden\n")
    tree.repo.git("worktree", "unlock", tree.path)
    tree.repo.git("worktree", "remove", tree.path)
    assert not tree.path.exists()


def test_an_edit_while_the_save_stages(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same size, same second, and git writes the index a second later: the file is read again."""
    path = tree.path / "new"
    path.write_text("status names it\n")
    edit_while_staging(monkeypatch, trees, path)
    assert tree.finish().kept is None
    assert tree.repo.show(f"{WIP}:new") == b"final\n"


def test_an_edit_in_the_moment_of_the_last_index_write(tree: Tree) -> None:
    """Same size, same second: only the time of the index itself betrays the edit."""
    for number in range(20):
        (tree.path / "file.txt").write_text(f"{number:03}\n")
        tree.inside.git("add", "file.txt")
        (tree.path / "file.txt").write_text(f"{number + 500:03}\n")
    tree.finish()
    assert tree.repo.show(f"{WIP}:file.txt") == b"519\n"
