"""A damaged ``.git`` is an error: an agent could damage it, and the next one would work in the checkout."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import make_repo
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

AGENT = ("-n", "1", "--", "sh", "-c", "pwd")
NO_COMMIT = "0123456789012345678901234567890123456789\n"


def _write(name: str, content: str) -> Callable[[Path], None]:
    def damage(git_dir: Path) -> None:
        (git_dir / name).write_text(content)

    return damage


def _link(name: str, target: str) -> Callable[[Path], None]:
    def damage(git_dir: Path) -> None:
        (git_dir / name).unlink()
        (git_dir / name).symlink_to(target)

    return damage


def _remove(name: str) -> Callable[[Path], None]:
    return lambda git_dir: (git_dir / name).unlink()


def _replace_by_directory(name: str) -> Callable[[Path], None]:
    def damage(git_dir: Path) -> None:
        (git_dir / name).unlink(missing_ok=True)
        (git_dir / name).mkdir()

    return damage


def _replace_by_file(name: str) -> Callable[[Path], None]:
    def damage(git_dir: Path) -> None:
        shutil.rmtree(git_dir / name, ignore_errors=True)
        (git_dir / name).write_text("")

    return damage


def _damage_objects(git_dir: Path) -> None:
    for path in git_dir.glob("objects/??/*"):
        path.chmod(0o600)
        path.write_text("damaged")


def _replace_git_dir(git_dir: Path) -> None:
    git_dir.rename(git_dir.with_name("moved"))
    git_dir.write_text("gitdir: nowhere\n")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "HEAD is garbage": (_write("HEAD", "garbage\n"), "not a git repository"),
    "HEAD is empty": (_write("HEAD", ""), "not a git repository"),
    "HEAD is gone": (_remove("HEAD"), "not a git repository"),
    "HEAD is a directory": (_replace_by_directory("HEAD"), "not a git repository"),
    "HEAD leads out": (_link("HEAD", "/etc/hostname"), "not a git repository"),
    "HEAD leads nowhere": (_link("HEAD", "nowhere"), "not a git repository"),
    "HEAD names a branch that is not there": (_write("HEAD", "ref: refs/heads/none\n"), "(branch none)"),
    "HEAD names a commit that is not there": (_write("HEAD", NO_COMMIT), "no commit at HEAD"),
    "a branch is garbage": (_write("refs/heads/main", "garbage\n"), "no commit at HEAD"),
    "a branch names no commit": (_write("refs/heads/main", NO_COMMIT), "no commit at HEAD"),
    "config is garbage": (_write("config", "[broken\n"), "bad config line"),
    "config is a directory": (_replace_by_directory("config"), "reading the configuration files"),
    "config has another version": (_write("config", "[core]\nrepositoryformatversion=99\n"), "found 99"),
    "config denies the checkout": (
        _write("config", "[core]\nrepositoryformatversion=0\nbare=true\n"),
        "core.bare",
    ),
    "packed-refs is garbage": (_write("packed-refs", "garbage\n"), "packed-refs"),
    "packed-refs is a directory": (_replace_by_directory("packed-refs"), "packed-refs"),
    "objects are damaged": (_damage_objects, "no commit at HEAD"),
    "objects is a file": (_replace_by_file("objects"), "not a git repository"),
    "worktrees is a file": (_replace_by_file("worktrees"), "worktrees is no directory"),
    "logs is a file": (_replace_by_file("logs"), "logs is no directory"),
    "shallow is garbage": (_write("shallow", "garbage\n"), "no commit at HEAD"),
    "commondir leads nowhere": (_write("commondir", "nowhere\n"), "not a git repository"),
    ".git leads nowhere": (_replace_git_dir, "not a git repository"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_no_session_falls_back_to_the_checkout(repo: Repo, name: str) -> None:
    """The agent does not run; the error says what is wrong, and what to do."""
    damage, words = DAMAGES[name]
    damage(repo.path / ".git")
    ended = run(repo.path, *AGENT)
    assert (ended.status, ended.stdout) == (125, b""), ended.stderr
    error = ended.warnings[-1]
    assert words in error["message"]
    assert error["hint"] or "packed-refs" in words


def test_only_the_user_decides_to_work_without_isolation(repo: Repo) -> None:
    """The same repository, with the option that says so."""
    repo.path.joinpath(".git/HEAD").write_text("garbage\n")
    ended = run(repo.path, "--isolation", "off", *AGENT)
    assert (ended.status, ended.stdout.decode().strip()) == (0, str(repo.path))


def test_a_damaged_index_costs_no_isolation(repo: Repo) -> None:
    """A worktree has an index of its own."""
    repo.path.joinpath(".git/index").write_text("garbage\n")
    ended = run(repo.path, *AGENT)
    assert ".ralph/worktrees" in ended.stdout.decode()


def test_another_base_helps_where_head_has_no_commit(tmp_path: Path, repo: Repo) -> None:
    """On an orphan branch the user names the commit; a new repository is no damaged one."""
    repo.git("symbolic-ref", "HEAD", "refs/heads/orphan")
    assert ".ralph/worktrees" in run(repo.path, "--base", "main", *AGENT).stdout.decode()
    new = make_repo(tmp_path / "new", empty=True)
    assert run(new.path, *AGENT).stdout.decode().strip() == str(new.path)
