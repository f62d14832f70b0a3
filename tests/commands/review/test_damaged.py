"""A branch whose objects are damaged, missing or replaced gets one row, and the others are compared."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches import compare as comparing
from ralph_wrap.branches import damage, merged_by_patch
from ralph_wrap.commands.drop import DropSelection, drop
from ralph_wrap.state.project import find_project
from tests.commands.review.reviewing import look_at, rows_of
from tests.support.merging import branch
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

WORKFLOW = ".github/workflows/ci.yml"
PERSON = "A <a@example.invalid> 1 +0000"


@pytest.fixture
def project(repo: Repo) -> Repo:
    """Return a project with two branches; the main branch has a commit that neither has."""
    branch(repo, "aaaa", {WORKFLOW: "run: evil\n", "file.txt": "EVIL\n"})
    branch(repo, "bbbb", {"other.txt": "other\n"})
    repo.write("file.txt", "harmless\n")
    repo.write(WORKFLOW, "run: evil\n")
    repo.commit("main moves on")
    return repo


def _file(repo: Repo, revision: str) -> Path:
    """Return the file of an object, which can be written."""
    oid = repo.git("rev-parse", revision)
    path = repo.path / ".git/objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    return path


def _replace(repo: Repo, revision: str, other: str) -> str:
    """Give an object the content of another one, and return its id."""
    oid = repo.git("rev-parse", revision)
    _file(repo, revision).write_bytes(_file(repo, other).read_bytes())
    return oid


def _written(repo: Repo, kind: str, content: bytes) -> str:
    source = repo.path / ".git/content"
    source.write_bytes(content)
    return repo.git("hash-object", "-t", kind, "--literally", "-w", source)


def _commit(repo: Repo, tree: str, *parents: str) -> str:
    """Write a commit as git itself might refuse to, and return its id."""
    rows = [f"tree {tree}", *(f"parent {repo.git('rev-parse', parent)}" for parent in parents)]
    rows += [f"author {PERSON}", f"committer {PERSON}", "", "forged", ""]
    return _written(repo, "commit", "\n".join(rows).encode())


def _points_to(repo: Repo, tree: str) -> None:
    repo.git("update-ref", "refs/heads/ralph/aaaa", _commit(repo, tree, "main"))


def _lacks_its_parent(repo: Repo) -> None:
    middle = _commit(repo, repo.git("rev-parse", "ralph/aaaa^{tree}"), "ralph/aaaa")
    tip = _commit(repo, repo.git("rev-parse", "ralph/aaaa^{tree}"), middle)
    repo.git("update-ref", "refs/heads/ralph/aaaa", tip)
    _file(repo, middle).unlink()


DAMAGES: dict[str, Callable[[Repo], object]] = {
    "a file is missing": lambda repo: _file(repo, "ralph/aaaa:file.txt").unlink(),
    "a file is cut short": lambda repo: _file(repo, "ralph/aaaa:file.txt").write_bytes(b"x"),
    "the tree is missing": lambda repo: _file(repo, "ralph/aaaa^{tree}").unlink(),
    "a directory is missing": lambda repo: _points_to(
        repo, _written(repo, "tree", b"40000 below\0" + bytes.fromhex("11" * 20))
    ),
    "the tree ends in an entry": lambda repo: _points_to(repo, _written(repo, "tree", b"100644 file\0short")),
    "the tree is a file": lambda repo: _points_to(repo, repo.git("rev-parse", "main:file.txt")),
    "the commit is cut short": lambda repo: _file(repo, "ralph/aaaa").write_bytes(b"x"),
    "an earlier commit is missing": _lacks_its_parent,
    "a file is replaced": lambda repo: _replace(repo, "ralph/aaaa:file.txt", "main:file.txt"),
    "the tree is replaced": lambda repo: _replace(repo, "ralph/aaaa^{tree}", "ralph/aaaa~^{tree}"),
    "the commit is replaced": lambda repo: _replace(repo, "ralph/aaaa", "ralph/aaaa~"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_other_branches_are_compared(project: Repo, name: str) -> None:
    """The branch has a row that says what is wrong, and a note does."""
    DAMAGES[name](project)
    found = look_at(project)
    rows = {row.id: row for row in found.rows}
    assert rows["aaaa"].damage
    assert (rows["aaaa"].merged, rows["aaaa"].touches, rows["aaaa"].ahead) == (None, None, None)
    other = rows["bbbb"]
    assert (other.damage, other.ahead, other.behind, other.files) == (None, 1, 1, 1)
    assert found.notes == (f"not compared: ralph/aaaa, because {rows['aaaa'].damage}",)


def test_the_list_says_so(project: Repo) -> None:
    """The program ends with success; without the damage the branch is compared."""
    assert "damaged" not in command("review", cwd=project.path).stdout.decode()
    DAMAGES["the tree is missing"](project)
    ended = command("review", cwd=project.path)
    (row,) = (line for line in ended.stdout.decode().split("\n") if "ralph/aaaa" in line)
    assert (ended.status, "damaged" in row, "ralph/aaaa, because" in ended.stderr) == (0, True, True)


def test_many_damaged_branches_cost_few_commands(project: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of attempts, the branches that git cannot read together count as damaged."""
    monkeypatch.setattr(damage, "_MOST_TRIALS", 3)
    DAMAGES["an earlier commit is missing"](project)
    tree = project.git("rev-parse", "main^{tree}")
    for number in range(20):
        made = _commit(project, tree, "ralph/aaaa" if number else "ralph/bbbb")
        project.git("update-ref", f"refs/heads/ralph/{number:04x}", made)
    rows = rows_of(project)
    assert all(row.damage for name, row in rows.items() if name not in {"bbbb", "0000"})


def test_a_replaced_tree_hides_no_file_that_other_programs_run(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the defence off, the branch seems to change nothing."""
    oid = _replace(project, "ralph/aaaa^{tree}", "ralph/aaaa~^{tree}")
    assert oid in str(rows_of(project)["aaaa"].damage)
    monkeypatch.setattr(comparing, "require_objects", lambda *_: None)
    assert rows_of(project)["aaaa"].touches == ()


@pytest.mark.parametrize("defended", [True, False])
def test_drop_takes_no_branch_for_merged_by_replaced_content(
    project: Repo, monkeypatch: pytest.MonkeyPatch, *, defended: bool
) -> None:
    """The content of the main branch under the id of the agent's file makes the patches equal."""
    _replace(project, "ralph/aaaa:file.txt", "main:file.txt")
    if not defended:
        for module in (comparing, merged_by_patch):
            monkeypatch.setattr(module, "require_contents", lambda *_: None)
    dropped, _ = drop(find_project(project.path, os.environ), DropSelection((), merged=True), 0.0)
    assert [row.branch for row in dropped] == ([] if defended else ["ralph/aaaa"])
    assert ("ralph/aaaa" in project.branches()) == defended


def test_drop_keeps_a_damaged_branch_without_force(project: Repo) -> None:
    """What it holds is unknown, so it may be work; ``--force`` is the user's word."""
    DAMAGES["the tree is replaced"](project)
    ended = command("drop", "aaaa", cwd=project.path)
    assert (ended.status, "unknown commits and files" in ended.stderr) == (5, True), ended.stderr
    assert command("drop", "aaaa", "--force", cwd=project.path).status == 0
    assert project.branches() == ["main", "ralph/bbbb"]


def test_a_replaced_commit_of_the_main_branch_is_an_error(project: Repo) -> None:
    """It can name the tip of a branch as its parent. Then the branch would seem to be merged."""
    forged = _commit(project, project.git("rev-parse", "main^{tree}"), "main~", "ralph/bbbb")
    oid = _replace(project, "main", forged)
    ended = command("drop", "--merged", cwd=project.path)
    assert (ended.status != 0, oid in ended.stderr) == (True, True), ended.stderr
    assert "ralph/bbbb" in project.branches()
