"""The registration of a worktree that we write ourselves is as git would have written it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.system import files
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.ownership import MARK, SessionMark, WorktreeOwner
from ralph_wrap.worktree.register import add
from tests.support.directory_listing import listing
from tests.support.git_shim import shim_git
from tests.support.orphans import sweep
from tests.support.processes import end_all
from tests.support.repo import Repo
from tests.support.sessions import command
from tests.support.trees import ID, SESSION, located, make_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WRITTEN = ("locked", "commondir", MARK, "HEAD", ".git", "gitdir")  # in this order


def _add(repo: Repo, path: Path, branch: str | None = None) -> Path:
    git, repository = located(repo)
    path.mkdir(parents=True)
    with repository_lock(repository.common_dir):
        head = f"refs/heads/{branch}" if branch else repo.head
        return add(git, repository, path, WorktreeOwner("a test"), head)


def _contents(registration: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in registration.iterdir() if path.is_file()}


@pytest.mark.parametrize("branch", ["topic", None])
def test_it_has_the_files_that_git_writes(repo: Repo, tmp_path: Path, branch: str | None) -> None:
    """Only the reason of the lock and the paths differ."""
    repo.git("branch", "topic")
    ours = _contents(_add(repo, tmp_path / "ours", branch))
    repo.git("worktree", "remove", "-f", "-f", tmp_path / "ours")
    names = (tmp_path / "gits", branch) if branch else ("--detach", tmp_path / "gits")
    repo.git("worktree", "add", "-q", "--no-checkout", "--lock", *names)
    gits = _contents(repo.path / ".git/worktrees/gits")
    assert (ours.pop("locked"), gits.pop("locked")) == (b"a test\n", b"added with --lock\n")
    assert {name: text.replace(b"/ours", b"/gits") for name, text in ours.items()} == gits


@pytest.mark.parametrize(
    ("name", "registered"),
    [
        ("1.2-a_b", "1.2-a_b"),
        ("taken", "taken1"),
        ("two words", "two-words"),
        ("..a..b.lock", "-.a-.b-lock"),
        ("end.", "end-"),
        ("~^:?*[\\@{\n", "----------"),
    ],
)
def test_git_can_name_what_is_in_it(repo: Repo, tmp_path: Path, name: str, registered: str) -> None:
    """Its name is a part of the names of refs (gitrepository-layout(5)), so each character must fit."""
    repo.git("worktree", "add", "-q", "--detach", tmp_path / "elsewhere/taken")
    registration = _add(repo, tmp_path / name)
    assert registration.name == registered
    assert repo.git("rev-parse", f"worktrees/{registered}/HEAD") == repo.head
    assert Repo(tmp_path / name).git("rev-parse", "--absolute-git-dir") == os.fspath(registration)


def test_a_directory_that_is_registered_already_is_refused(repo: Repo, tmp_path: Path) -> None:
    """Git commands would find the first of the two."""
    repo.git("worktree", "add", "-q", "--detach", tmp_path / "theirs")
    (tmp_path / "theirs").rename(tmp_path / "moved")
    before = listing(repo.path / ".git/worktrees")
    with pytest.raises(FileExistsError, match="theirs is registered in its place"):
        _add(repo, tmp_path / "theirs")
    assert listing(repo.path / ".git/worktrees") == before


@pytest.mark.parametrize(
    "begin", [("rebase", "-q", "--exec", "false", "HEAD^"), ("bisect", "start", "HEAD", "HEAD~2")]
)
def test_a_branch_that_is_being_rebased_or_bisected_elsewhere_is_refused(
    repo: Repo, tmp_path: Path, begin: tuple[str, ...]
) -> None:
    """HEAD is detached there, and git will go back to the branch at the end; a rebase also moves it."""
    repo.git("worktree", "add", "-q", "-b", "topic", tmp_path / "theirs")
    theirs = Repo(tmp_path / "theirs")
    for _ in range(2):
        theirs.git("commit", "-q", "--allow-empty", "-m", "work")
    theirs.git("-c", "core.editor=false", *begin, check=False)
    assert theirs.git("branch", "--show-current") == ""
    options = ("--branch", "topic", "--isolation", "require", "-n", "1")
    done = command("run", *options, "--", "true", cwd=repo.path)
    assert (done.status, "at '" + os.fspath(theirs.path) in done.stderr) == (125, True), done.stderr
    assert [path.name for path in (repo.path / ".git/worktrees").iterdir()] == ["theirs"]


def test_the_branch_of_a_checkout_without_commits_is_refused(repo: Repo) -> None:
    """HEAD names it there, and it does not exist yet; the user's first commit will create it."""
    repo.git("checkout", "-q", "--orphan", "docs")
    done = command("run", "--base", "main", "--branch", "docs", "-n", "1", "--", "true", cwd=repo.path)
    assert done.status != 0, done.stdout
    assert f"branch docs is checked out in {repo.path}" in done.stderr
    assert repo.branches() == ["main"]
    assert not [*repo.path.glob(".git/worktrees/*")]


def test_a_prune_before_the_lock_is_written_is_no_obstacle(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ``git gc`` runs one, and it deletes a registration without a lock."""
    create = files.create
    pruned: list[Path] = []

    def late(path: Path, *arguments: Any, **options: Any) -> None:
        if not pruned:
            pruned.append(path)
            repo.git("worktree", "prune")
            assert not path.parent.exists()
        create(path, *arguments, **options)

    monkeypatch.setattr(files, "create", late)
    registration = _add(repo, tmp_path / "ours")
    assert pruned == [registration / "locked"]
    assert os.fspath(tmp_path / "ours") in repo.worktrees()


def test_the_patterns_and_the_configuration_of_the_checkout_are_copied(repo: Repo, tmp_path: Path) -> None:
    """As git-worktree(1) promises, under ``CONFIGURATION FILE``."""
    repo.write("sub/file", "x\n")
    repo.commit("a directory")
    repo.git("sparse-checkout", "set", "sub")
    repo.git("config", "--worktree", "user.nickname", "mine")
    registration = _add(repo, tmp_path / "ours")
    patterns = "info/sparse-checkout"
    assert (registration / patterns).read_bytes() == (repo.path / ".git" / patterns).read_bytes()
    assert Repo(tmp_path / "ours").git("config", "--worktree", "user.nickname") == "mine"


@pytest.mark.parametrize(
    ("mode", "umask", "registrations"),
    [(0o2770, 0o022, 0o2770), (0o755, 0o077, 0o700)],
    ids=["shared", "own"],
)
def test_the_members_of_a_group_that_shares_the_repository_can_register_theirs(
    repo: Repo, tmp_path: Path, mode: int, umask: int, registrations: int
) -> None:
    """The first worktree of a repository makes the directory of all registrations."""
    (repo.path / ".git").chmod(mode)
    before = os.umask(umask)
    try:
        registration = _add(repo, tmp_path / "ours")
    finally:
        os.umask(before)
    assert registration.parent.stat().st_mode & 0o7777 == registrations


def test_the_lock_is_written_first_and_what_makes_it_visible_last(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states that a kill can leave are those of the next test."""
    written: list[str] = []

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def write(path: Path, *arguments: object, **options: object) -> object:
            written.append(path.name)
            return function(path, *arguments, **options)

        return write

    for name in ("create", "replace"):
        monkeypatch.setattr(files, name, noting(getattr(files, name)))
    make_tree(repo, mark=SessionMark(SESSION, f"ralph/{ID}"))
    assert tuple(written) == WRITTEN


@pytest.fixture
def _ended(_sealed: None, tmp_path: Path) -> Iterator[None]:
    yield
    end_all(tmp_path / "home")


@pytest.mark.usefixtures("_ended")
@pytest.mark.parametrize("moved", [False, True], ids=["here", "moved"])
@pytest.mark.parametrize("half", [False, True], ids=["whole", "half"])
@pytest.mark.parametrize("steps", range(len(WRITTEN)))
def test_only_the_sweep_sees_a_half_made_registration(
    repo: Repo, tmp_path: Path, steps: int, half: bool, moved: bool
) -> None:
    """Git does not list it, and never prunes it; the next sweep removes it."""
    path = shim_git(tmp_path / "shim", '*" read-tree --reset "*) kill -KILL $PPID; exit 1 ;;')
    command("run", "--isolation", "require", "-n", "1", "--", "true", cwd=repo.path, env={"PATH": path})
    (directory,) = (repo.path / ".ralph/worktrees").iterdir()
    (registration,) = repo.path.glob(".git/worktrees/*")
    for name in WRITTEN[steps:]:
        (directory / name if name == ".git" else registration / name).unlink()
    if half and steps:
        last = directory / ".git" if WRITTEN[steps - 1] == ".git" else registration / WRITTEN[steps - 1]
        last.write_bytes(last.read_bytes()[:4])
    assert repo.worktrees() == []
    repo.git("gc", "-q", "--prune=now")
    assert registration.is_dir() is bool(steps), "git prunes one that is not locked yet"
    if moved:
        repo = Repo(repo.path.rename(tmp_path / "elsewhere"))
    swept = sweep(repo)
    assert swept.status == 0, swept.stdout
    assert [*(repo.path / ".ralph/worktrees").iterdir()] == []
    assert [*repo.path.glob(".git/worktrees/*")] == []
    assert repo.branches() == ["main"]
