"""Files that go back to their state in a commit, and files of the user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralph_wrap import git
from ralph_wrap.git import Git
from ralph_wrap.worktree.user_checkout import UserCheckout, restore_files
from tests.support.merging import branch, files_of, project_with_files
from tests.support.repo import Repo

CHANGES: dict[str, str | None] = {
    "file.txt": "one\nA\n",
    "gone": None,
    "gone/x": "x\n",
    "one/two/three": None,
    "one/two": "a file now\n",
    "new/a": "A\n",
}
MEDDLED = {
    "nothing": ("true", []),
    "half-written": ("printf 'one\\nA' >file.txt; : >new/a", []),
    "not there yet": ("rm -r file.txt new gone/x", []),
    "changed": ("echo mine >file.txt", ["file.txt"]),
    "changed what came": ("echo mine >new/a", ["new/a"]),
    "beside what came": ("echo mine >new/mine", []),
    "in a directory that was a file": ("echo mine >gone/mine", ["gone"]),
    "a link to a directory there": ("ln -s ../new gone/mine", ["gone"]),
    "changed where a file was": ("echo mine >gone/x", ["gone/x", "gone"]),
    "changed where a directory was": ("echo mine >one/two", ["one/two", "one/two/three"]),
    "a link instead of a directory": ("rm -r new; ln -s one new", []),
}


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("kind", MEDDLED)
def test_files_of_the_user_stay(tmp_path: Path, kind: str, partly: bool) -> None:
    """All goes back, or nothing does, or all but what is not ours: whatever was asked for."""
    repo = project_with_files(tmp_path / "project")
    old, new = repo.head, branch(repo, "aaaa", CHANGES)
    before = files_of(repo.path)
    repo.git("read-tree", "-m", "-u", old, new)
    body, foreign = MEDDLED[kind]
    repo.git("-c", f"alias.meddle=!{body}", "meddle")
    meddled = files_of(repo.path)
    here = Git(repo.path, git.git_environment(os.environ), repo.path / ".git", repo.path / ".git", repo.path)
    checkout = UserCheckout(repo.path, repo.path / ".git", here)
    index = repo.git("ls-files", "--stage")
    assert restore_files(checkout, tmp_path / "index", old, new, partly=partly) == foreign
    after = files_of(repo.path)
    assert repo.git("ls-files", "--stage") == index
    if foreign and not partly:
        assert after == meddled
        return
    mine = {path for path, entry in meddled.items() if b"mine" in entry[1] or path.endswith("/mine")}
    assert {path: after[path] for path in mine} == {path: meddled[path] for path in mine}
    expected = {
        path for path in before if not any(path == one or one.startswith(f"{path}/") for one in foreign)
    }
    assert {path: after.get(path) for path in expected if not path.startswith("one/two")} == {
        path: before[path] for path in expected if not path.startswith("one/two")
    }
    if not foreign and not mine:
        assert {path: entry for path, entry in after.items() if path != "new"} == before


def test_a_half_written_file_differs_from_a_changed_one(tmp_path: Path) -> None:
    """Negative control: a file that is no beginning of the new one stays."""
    repo: Repo = project_with_files(tmp_path / "project")
    old, new = repo.head, branch(repo, "aaaa", {"file.txt": "one\nA\n"})
    here = Git(repo.path, git.git_environment(os.environ), repo.path / ".git", repo.path / ".git", repo.path)
    checkout = UserCheckout(repo.path, repo.path / ".git", here)
    for content, foreign in (("one\nB", ["file.txt"]), ("one\n", []), ("", []), ("one\nA\nB", ["file.txt"])):
        repo.write("file.txt", content)
        assert restore_files(checkout, tmp_path / "index", old, new, partly=False) == foreign, content
