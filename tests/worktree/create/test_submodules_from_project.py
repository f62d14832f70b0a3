"""A submodule whose origin does not answer comes from the project, if its repository has the commit."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.create.submodules import init_submodules
from tests.support.repo import Repo, make_repo
from tests.support.submodules import ALLOWED, SUB, make_project
from tests.support.trees import located, make_tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ended", "trusted")


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_one_comes_from_the_project_that_has_its_commit(tmp_path: Path, object_format: str) -> None:
    """Its origin does not answer; object ids may be long."""
    repo, library = (make_repo(tmp_path / name, empty=True) for name in ("repo", "library"))
    for each in (repo, library):
        shutil.rmtree(each.path / ".git")
        each.git("init", "-q", f"--object-format={object_format}", "--initial-branch=main")
        each.write("file.txt", "one\n")
        each.commit("first")
    repo.git(*ALLOWED, "submodule", "--quiet", "add", library.path, "lib")
    repo.commit("with a submodule")
    repo.git("fetch", "-q", library.path, "main:refs/ralph/snapshots/00aa/submodule-1")
    shutil.rmtree(repo.path / ".git/modules")
    library.path.rename(tmp_path / "gone")
    tree = make_tree(repo)
    init_submodules(tree.linked, located(repo)[0])
    assert Repo(tree.path / "lib").git("log", "-1", "--format=%s").strip() == "first"


def test_one_with_an_origin_that_answers_has_its_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the repository of the project has the commit, too: it has no tags and no remote branches."""
    for name, value in {"COUNT": "1", "KEY_0": "protocol.file.allow", "VALUE_0": "always"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    remote = make_project(tmp_path / "world", checked_out=False)
    remote.upstream.git("tag", "v1")
    kept = "refs/ralph/snapshots/00aa/submodule-1"
    remote.repo.git(*ALLOWED, "fetch", "-q", remote.upstream.path, f"HEAD:{kept}")
    tree = make_tree(remote.repo)
    init_submodules(tree.linked, located(remote.repo)[0])
    assert Repo(tree.path / SUB).git("tag").strip() == "v1"
