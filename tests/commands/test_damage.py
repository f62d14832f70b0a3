"""Commands that read, move or delete work: a damaged object is named, and nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.doctor import examine
from tests.commands.doctor.world import World, verdict_of
from tests.support.damage import damage_loose
from tests.support.merging import branch, files_of, project_with_files
from tests.support.repo import Repo
from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.sessions import Result

DAMAGES = {
    "missing tip": ("missing", ""),
    "empty commit in the middle": ("empty", "~1"),
    "empty file": ("empty", ":last"),
    "truncated tree": ("truncated", "^{tree}"),
    "flipped file": ("flipped byte", "~1:only-here"),
    "missing file": ("missing", ":deep/er/last"),
    "commit of another type": ("other type", "~1"),
}
"""How an object is damaged, and which one of a branch with three commits."""

each_damage = pytest.mark.parametrize(("how", "which"), DAMAGES.values(), ids=DAMAGES.keys())


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a repository with a branch of three commits, whose objects are loose."""
    made = project_with_files(tmp_path / "project")
    made.git("config", "fastimport.unpackLimit", "1000")
    _grow(made, "aaaa", "main")
    return made


def _grow(repo: Repo, name: str, base: str) -> None:
    branch(repo, name, {"first": f"first of {name}\n" * 20}, base=base)
    branch(repo, name, {"only-here": f"only here in {name}\n" * 20})
    files = {"only-here": None, "last": f"last of {name}\n" * 20, "deep/er/last": f"deep of {name}\n" * 20}
    branch(repo, name, files)


def _state(repo: Repo) -> object:
    return repo.git("for-each-ref", "--format=%(refname) %(objectname)"), files_of(repo.path)


def _damage(repo: Repo, how: str, revision: str) -> str:
    oid = repo.git("rev-parse", revision)
    damage_loose(repo, oid, how)
    return oid


def _refused(repo: Repo, oid: str, *words: str) -> Result:
    """Run a command that changes nothing and names a damaged object."""
    before = _state(repo)
    result = command(*words, cwd=repo.path)
    assert result.status != 0
    assert oid in result.stderr + result.stdout.decode()
    assert _state(repo) == before
    return result


@each_damage
@pytest.mark.parametrize("method", ["--no-ff", "--squash", "--rebase", "fast-forward"])
def test_a_damaged_branch_does_not_land(repo: Repo, how: str, which: str, method: str) -> None:
    """Also if the damage is in a commit before the last, which a merge would take along."""
    oid = _damage(repo, how, f"ralph/aaaa{which}")
    _refused(repo, oid, "merge", "aaaa", *([method] if method.startswith("--") else []))


@each_damage
def test_another_branch_lands_beside_a_damaged_one(repo: Repo, how: str, which: str) -> None:
    """The damaged one is left."""
    branch(repo, "bbbb", {"other": "other\n"})
    oid = _damage(repo, how, f"ralph/aaaa{which}")
    result = command("merge", "aaaa", "bbbb", cwd=repo.path)
    assert oid in result.stderr + result.stdout.decode()
    assert repo.git("rev-parse", "main") == repo.git("rev-parse", "ralph/bbbb")


@each_damage
def test_damaged_saved_work_is_not_applied(repo: Repo, how: str, which: str) -> None:
    """No file changes."""
    _grow(repo, "aaaa-wip", "ralph/aaaa")
    oid = _damage(repo, how, f"ralph/aaaa-wip{which}")
    _refused(repo, oid, "apply", "aaaa")


@each_damage
def test_a_damaged_branch_is_not_dropped(repo: Repo, how: str, which: str) -> None:
    """Not even what is left of it."""
    _damage(repo, how, f"ralph/aaaa{which}")
    before = _state(repo)
    assert command("drop", "aaaa", cwd=repo.path).status != 0
    assert _state(repo) == before


@each_damage
def test_a_damaged_branch_is_not_restored(repo: Repo, how: str, which: str) -> None:
    """It stays among the dropped ones."""
    assert command("drop", "--force", "aaaa", cwd=repo.path).status == 0
    oid = _damage(repo, how, f"refs/ralph/dropped/aaaa{which}")
    _refused(repo, oid, "restore", "aaaa")


@pytest.fixture
def worktree(repo: Repo) -> Repo:
    """Return a worktree for another program, with three commits on its branch."""
    made = command("worktree", "create", "fix auth", cwd=repo.path)
    tree = Repo(Path(json.loads(made.stdout)["data"]["path"]))
    for files in (
        {"first": "1\n" * 20},
        {"only-here": "2\n" * 20},
        {"last": "3\n" * 20, "deep/er/last": "4\n" * 20},
    ):
        (tree.path / "only-here").unlink(missing_ok=True)
        for name, content in files.items():
            tree.write(name, content)
        tree.commit()
    return tree


@each_damage
def test_a_worktree_with_damaged_commits_is_not_removed(
    repo: Repo, worktree: Repo, how: str, which: str
) -> None:
    """Another branch has its commits, by name: they could not be read there either."""
    name = worktree.git("rev-parse", "--abbrev-ref", "HEAD")
    oid = _damage(repo, how, f"{name}{which}")
    _refused(repo, oid, "worktree", "cleanup", str(worktree.path), "--keep-branch=false")
    assert worktree.path.is_dir()


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "flipped byte"])
def test_a_ref_of_ours_to_nothing_is_named(repo: Repo, tmp_path: Path, how: str) -> None:
    """By the doctor and by a sweep, with a command that ends it."""
    host, ref = World(tmp_path / "host").root, "refs/heads/ralph/aaaa-wip"
    tip = repo.git("commit-tree", "-m", "saved work\n" * 20, "main^{tree}")
    repo.git("update-ref", ref, tip)
    damage_loose(repo, tip, how)
    verdict, found = verdict_of(examine(repo.path, os.environ, host), "refs")
    problem = "missing" if how == "missing" else "damaged"
    assert (verdict, found.startswith(f"{ref} names commit {tip}, which is {problem}")) == ("FAIL", True)
    [warning] = [line for line in command("sweep", cwd=repo.path).narration if line["event"] == "ref.broken"]
    assert found in warning["message"]
    typed = warning["hint"].removeprefix("to delete the ref: ")
    subprocess.run(typed, shell=True, cwd=repo.path, check=True)  # noqa: S602 -- as a user types it
    assert verdict_of(examine(repo.path, os.environ, host), "refs")[0] == "ok"


def test_commands_work_on_whole_branches(repo: Repo, worktree: Repo) -> None:
    """As a control."""
    _grow(repo, "aaaa-wip", "ralph/aaaa")
    assert command("merge", "aaaa", cwd=repo.path).status == 0
    assert command("apply", "aaaa", cwd=repo.path).status == 0
    assert command("drop", "--force", "aaaa", cwd=repo.path).status == 0
    assert command("restore", "aaaa", cwd=repo.path).status == 0
    clean = command(
        "worktree", "cleanup", str(worktree.path), "--keep-branch=false", "--force", cwd=repo.path
    )
    assert clean.status == 0
