"""Submodules at the removal of a worktree, and afterwards."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.errors import RefusedError
from ralph_wrap.system import files
from ralph_wrap.worktree.create.replica import CLONED
from ralph_wrap.worktree.remove import finish
from ralph_wrap.worktree.save import whole
from ralph_wrap.worktree.save.result import SaveRequest
from tests.support.git_shim import shim_git
from tests.support.repo import make_repo
from tests.support.submodules import ALLOWED, NESTED, SUB, Project, held, inside, make_project
from tests.support.trees import ID, SESSION, Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.worktree.remove import WorktreeOutcome
    from ralph_wrap.worktree.save.result import Losses
from tests.worktree.save.submodules.states import (
    on_a_branch,
    remove_checked,
    repository,
    stashed,
)

# What happens in the meantime


def _late_file(tree: Tree) -> None:
    inside(tree).write("late", "precious\n")


def _late_commit(tree: Tree) -> None:
    inside(tree).commit("late")


def _late_branch(tree: Tree) -> None:
    on_a_branch(inside(tree))


def _late_module(tree: Tree) -> None:
    other = make_repo(tree.repo.path.parent / "late")
    shutil.copytree(other.path / ".git", tree.linked.registration / "modules" / "late")


def _late_stash(tree: Tree) -> None:
    stashed(inside(tree))


def _late_nested_file(tree: Tree) -> None:
    inside(tree, NESTED).write("late", "precious\n")


def _late_repository(tree: Tree) -> None:
    other = make_repo(tree.repo.path.parent / "late")
    tree.inside.git(*ALLOWED, "submodule", "--quiet", "add", other.path, "late")


LATE = [
    _late_file,
    _late_commit,
    _late_branch,
    _late_stash,
    _late_nested_file,
    _late_repository,
    _late_module,
]


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.__name__.strip("_"))
def test_work_after_the_save_is_saved_before_the_removal(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, late: Callable[[Tree], None]
) -> None:
    """The last look finds it, when no process can reach the worktree any more; then all is saved again."""
    inside(tree).write("saved", "before\n")
    real, saves = whole.save, list[object]()

    def save_and_write(*arguments: object, **options: object) -> object:
        saves.append(real(*arguments, **options))  # type: ignore[arg-type]
        if len(saves) == 1:
            late(tree)
        return saves[-1]

    monkeypatch.setattr(import_module("ralph_wrap.worktree.remove"), "save", save_and_write)
    outcome = tree.finish()
    assert len(saves) == 2
    assert (outcome.kept is None) is not tree.path.exists()


def test_a_registration_of_which_submodules_are_deleted_first(
    project: Project, tree: Tree, tmp_path: Path
) -> None:
    """Git killed at it: the last look was taken, so that nothing is lost if we delete the rest."""
    commit = inside(tree).commit("work")
    registration = tree.linked.registration
    deadly = f'*" worktree remove "*) rm -rf {registration}/modules; kill -9 $$ ;;'
    outcome = _finish_with(tree, {"PATH": shim_git(tmp_path / "bin", deadly)})
    assert outcome.kept is None
    assert not tree.path.exists()
    assert not registration.exists()
    assert commit in held(project.store).values()


def _finish_with(tree: Tree, env: dict[str, str]) -> WorktreeOutcome:
    return finish(
        tree.linked,
        git.Git(tree.repo.path, git.git_environment({**os.environ, **env})),
        SaveRequest(ID, SESSION),
        trash=tree.repo.path / ".ralph" / "run" / "trash",
        keep=None,
    )


# Removal without saving


class _KilledError(Exception):
    """The process ends here: no further step of it is done."""


def _killed(*_: object, **__: object) -> None:
    raise _KilledError


def _refuse(lost: Losses) -> None:
    if not lost.none:
        raise RefusedError("; ".join(lost.lines()))


def test_removal_lists_what_would_be_lost_in_submodules(tree: Tree) -> None:
    """As it does for the worktree itself."""
    sub = inside(tree)
    commit = sub.commit("work")
    sub.write("new", "n\n")
    with pytest.raises(RefusedError) as refused:
        remove_checked(tree, _refuse)
    printed = f"uncommitted: {SUB}; uncommitted: {SUB}/new; commit on no branch: {commit}"
    assert refused.value.message == printed
    assert (tree.path / SUB / "new").exists()


def test_removal_of_an_unchanged_one(tree: Tree) -> None:
    """Nothing would be lost."""
    assert remove_checked(tree, _refuse).none
    assert not tree.path.exists()


def test_removal_after_a_kill_during_a_write_of_a_file_of_ours(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary file of the write holds no work."""
    monkeypatch.setattr("pathlib.Path.replace", _killed)
    monkeypatch.setattr("pathlib.Path.unlink", _killed)
    with pytest.raises(_KilledError):
        files.replace(repository(tree) / CLONED, b"")
    monkeypatch.undo()
    assert files.temporaries(repository(tree) / CLONED)
    assert remove_checked(tree, _refuse).none
    assert not tree.path.exists()


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.__name__.strip("_"))
def test_removal_looks_for_the_last_time(tree: Tree, late: Callable[[Tree], None]) -> None:
    """A change between the list and the removal keeps it."""

    def check_and_write(lost: Losses) -> None:
        _refuse(lost)
        late(tree)

    with pytest.raises(RefusedError, match="something was changed in it"):
        remove_checked(tree, check_and_write)
    assert tree.path.is_dir()


# Afterwards


def test_saved_work_is_taken_over_in_the_main_checkout(project: Project, tree: Tree) -> None:
    """By the commands of the README."""
    inside(tree).write("file.txt", "changed\n")
    tree.finish()
    ref = f"refs/ralph/snapshots/{ID}/submodule-1"
    words = ("--git-dir=.git/modules/vendor/x", "log", "-p", "-m", "--first-parent", ref)
    assert "+changed" in project.repo.git(*words)
    project.repo.git("-C", SUB, "switch", "-q", "-c", ID, ref)
    assert (project.repo.path / SUB / "file.txt").read_text() == "changed\n"


def test_saved_work_is_taken_over_from_the_project(tmp_path: Path) -> None:
    """The same, where the main checkout had no such submodule."""
    project = make_project(tmp_path / "world", checked_out=False)
    tree = project.tree()
    inside(tree).write("file.txt", "changed\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    (ref,) = next(one.refs for one in outcome.saved.inner if one.path == SUB)
    project.repo.git(*ALLOWED, "submodule", "--quiet", "update", "--init")
    project.repo.git("-C", SUB, "fetch", "-q", "../..", ref)
    project.repo.git("-C", SUB, "switch", "-q", "-c", ID, "FETCH_HEAD")
    assert (project.repo.path / SUB / "file.txt").read_text() == "changed\n"
