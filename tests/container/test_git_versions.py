"""What git lists, in the words of older and newer versions than the one on this machine."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from ralph_wrap import git
from ralph_wrap.config import Settings
from ralph_wrap.errors import DamagedRepositoryError
from ralph_wrap.git import Git, WorktreeInfo
from ralph_wrap.session.preflight import look_first
from ralph_wrap.state.project import find_project
from ralph_wrap.worktree.ownership import SessionMark
from tests.container import debian_git
from tests.container.base_image import BaseImageError
from tests.support.needs import skip_or_fail
from tests.support.repo import Repo
from tests.support.trees import ID, SESSION, make_tree

pytestmark = pytest.mark.container

SUITES = ("bullseye", "bookworm", "trixie", "sid")
"""Git 2.30, 2.39, 2.47, and the newest that Debian has."""

REASON = '"why"\n\\ \udcff\tand not'


@pytest.fixture(params=SUITES)
def container(request: pytest.FixtureRequest, engine: docker.DockerClient, tmp_path: Path) -> Iterator[str]:
    """Return the id of a container with the git of a suite and the directory of this test."""
    try:
        image = debian_git.ensure(engine, request.param)
    except BaseImageError as error:
        skip_or_fail(str(error), "REQUIRE_DOCKER")
    running = engine.containers.run(
        image,
        list(debian_git.FOREVER),
        detach=True,
        init=True,
        network_mode="none",
        volumes={str(tmp_path): {"bind": str(tmp_path), "mode": "rw"}},
        labels=["ralph-wrap-test"],
    )
    try:
        assert running.id is not None
        yield running.id
    finally:
        running.remove(force=True, v=True)


def test_worktrees_are_listed(
    container: str, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths with newlines since 2.36, locks and what is gone since 2.31; all else by each version."""

    def theirs(*arguments: str) -> bytes:
        status, stdout, stderr = debian_git.run(container, repo.path, tmp_path, *arguments)
        assert status == 0, stderr
        return stdout

    top = repo.path.parent
    add = ("worktree", "add", "-q")
    for name in ("a", "b plain", "c locked", "d why", "e gone", "f new\nline"):
        theirs(*add, "-b", f"topic/{name[0]}", f"{top}/{name}")
    theirs(*add, "--detach", f"{top}/g")
    theirs("worktree", "lock", f"{top}/c locked")
    theirs("worktree", "lock", f"{top}/d why")
    (repo.path / ".git/worktrees/d-why/locked").write_bytes(os.fsencode(REASON))
    shutil.rmtree(top / "e gone")
    _rename(repo.path / ".git/worktrees/a", top / "a", top / "a \udcff")

    head = repo.head
    version = git.parse_version(theirs("version"))
    tells, whole = version >= (2, 31), version >= (2, 36)
    gone = "gitdir file points to non-existent location" if tells else None
    monkeypatch.setenv("PATH", debian_git.shim(tmp_path / "shim", container))
    assert sorted(git.list_worktrees(Git(repo.path, git.git_environment(os.environ)))) == [
        WorktreeInfo(top / "a \udcff", "topic/a", head),
        WorktreeInfo(top / "b plain", "topic/b", head),
        WorktreeInfo(top / "c locked", "topic/c", head, locked="" if tells else None),
        WorktreeInfo(top / "d why", "topic/d", head, locked=REASON if tells else None),
        WorktreeInfo(top / "e gone", "topic/e", head, prunable=gone),
        WorktreeInfo(top / ("f new\nline" if whole else "f new"), "topic/f", head),
        WorktreeInfo(top / "g", None, head),
        WorktreeInfo(repo.path, "main", head),
    ]


@pytest.mark.parametrize(
    ("container", "has_reftables"),
    [*((suite, False) for suite in SUITES), ("trixie", True), ("sid", True)],
    indirect=["container"],
)
def test_the_worktree_of_a_session_is_on_its_branch(
    container: str, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_reftables: bool
) -> None:
    """Each version reads the registration that we wrote; its reflog begins with the work."""
    if has_reftables:
        _use_reftables(container, repo)
    monkeypatch.setenv("PATH", debian_git.shim(tmp_path / "shim", container))
    tree = make_tree(repo, mark=SessionMark(SESSION, f"ralph/{ID}"))
    inside = Git(tree.path, git.git_environment(os.environ))
    assert git.read_head(inside).branch == f"refs/heads/ralph/{ID}"
    assert git.list_worktrees(inside)[-1].branch == f"ralph/{ID}"
    assert git.run_git(inside, "reflog", "exists", "HEAD", accept=(0, 1)).status == 1
    assert git.run_git(inside, "status", "--porcelain").stdout == b""


@pytest.mark.parametrize("container", ["trixie", "sid"], indirect=True)
def test_a_repository_with_reftables_has_sessions(
    container: str, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git puts a file in the place of ``refs/heads`` there. Any other such file is damage."""

    def look() -> str | None:
        project = find_project(repo.path, os.environ)
        return look_first(Settings(project=repo.path, command=("true",)), project).base

    head = repo.head
    _use_reftables(container, repo)
    assert (repo.path / ".git/refs/heads").is_file()
    monkeypatch.setenv("PATH", debian_git.shim(tmp_path / "shim", container))
    assert look() == head
    shutil.rmtree(repo.path / ".git/logs", ignore_errors=True)
    (repo.path / ".git/logs").write_bytes(b"")
    with pytest.raises(DamagedRepositoryError):
        look()


def _use_reftables(container: str, repo: Repo) -> None:
    shutil.rmtree(repo.path / ".git/logs")  # git 2.47 cannot take them along
    status, _, stderr = debian_git.run(
        container, repo.path, repo.path.parent, "refs", "migrate", "--ref-format=reftable"
    )
    assert status == 0, stderr


def _rename(registration: Path, path: Path, new: Path) -> None:
    """Move a worktree to a name that cannot be an argument in a container: JSON knows no such bytes."""
    path.rename(new)
    (registration / "gitdir").write_bytes(os.fsencode(new / ".git") + b"\n")
