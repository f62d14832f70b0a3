"""What would go wrong with records and locks; each check is seen to fail, and to pass."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from ralph_wrap.commands.doctor import examine, probes
from ralph_wrap.session.sandbox import launcher
from ralph_wrap.system import files, process_tree
from tests.commands.doctor.world import failing, verdict_of, with_environ
from tests.support.directory_listing import listing
from tests.support.repo import Repo

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


# What a session makes


def test_records_can_be_kept(repo: Repo, host: Path) -> None:
    """Whether something was kept before or not."""
    assert verdict_of(examine(repo.path, os.environ, host), ".ralph") == ("ok", "can be created")
    (repo.path / ".ralph/run/agents").mkdir(parents=True)
    assert verdict_of(examine(repo.path, os.environ, host), ".ralph") == ("ok", "exists, and is writable")


@pytest.mark.parametrize("entry", [".ralph", ".ralph/run", ".ralph/worktrees"])
def test_a_symlink_is_not_followed(repo: Repo, host: Path, tmp_path: Path, entry: str) -> None:
    """Wherever it stands; nothing is made behind it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = repo.path / entry
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    found = examine(repo.path, os.environ, host)
    assert verdict_of(found, ".ralph") == ("FAIL", f"{link} is a symlink, which is not followed")
    assert list(elsewhere.iterdir()) == []


def test_a_file_in_the_way(repo: Repo, host: Path) -> None:
    """Records need a directory."""
    path = repo.write(".ralph/run/agents")
    found = examine(repo.path, os.environ, host)
    assert verdict_of(found, ".ralph") == ("FAIL", f"{path} is in the way: it is not a directory")


def test_the_ignore_rule(repo: Repo, host: Path, tmp_path: Path) -> None:
    """There, to be added, not wanted, or not to be had."""

    def rule(**environ: str) -> tuple[str, str]:
        return verdict_of(examine(repo.path, with_environ(**environ), host), "ignore rule")

    path = repo.path / ".gitignore"
    assert rule() == ("ok", f"the first session adds .ralph/worktrees/ to {path}")
    exclude = repo.path / ".git/info/exclude"
    assert rule(RALPH_WRAP_IGNORE="exclude") == (
        "ok",
        f"the first session adds .ralph/worktrees/ to {exclude}",
    )
    assert rule(RALPH_WRAP_IGNORE="off") == ("note", ".ralph/worktrees/ is not ignored, as configured")
    path.symlink_to(tmp_path / "elsewhere")
    assert rule() == ("ok", f"the first session adds .ralph/worktrees/ to {exclude}")
    exclude.unlink()
    exclude.symlink_to(tmp_path / "elsewhere")
    assert rule() == ("FAIL", f"{exclude} is no file")
    path.unlink()
    path.write_text(".ralph/\n")
    assert rule() == ("ok", ".ralph/worktrees/ is ignored")


def test_a_branch_in_the_way(repo: Repo, host: Path) -> None:
    """It leaves no room for ralph/<id>, which another one does."""
    repo.git("branch", "ralphs")
    assert verdict_of(examine(repo.path, os.environ, host), "branch names")[0] == "ok"
    repo.git("branch", "ralph")
    assert verdict_of(examine(repo.path, os.environ, host), "branch names")[0] == "FAIL"


# Locks


def test_locks_are_tried(repo: Repo, host: Path) -> None:
    """In one process, and from a second one."""
    found = examine(repo.path, os.environ, host)
    assert verdict_of(found, "locks") == ("ok", f"a second process sees a lock in {repo.path}")
    assert verdict_of(found, "repository lock")[0] == "ok"
    (repo.path / ".ralph/run").mkdir(parents=True)
    assert (
        f"a second process sees a lock in {repo.path}/.ralph/run"
        in verdict_of(examine(repo.path, os.environ, host), "locks")[1]
    )


def test_a_lock_that_is_held_is_not_disturbed(repo: Repo, host: Path) -> None:
    """A session that makes its worktree in this moment is proof enough."""
    lock = files.try_lock(repo.path / ".git")
    assert lock is not None
    found = examine(repo.path, os.environ, host)
    lock.release()
    assert verdict_of(found, "repository lock") == ("ok", f"a session holds the lock on {repo.path}/.git")


def test_no_locks_at_all(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system without a lock manager; nothing is left of the attempt."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = listing(repo.path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["locks", "repository lock"]
    assert verdict_of(found, "locks")[1] == f"cannot lock in {repo.path}: {os.strerror(errno.ENOLCK)}"
    assert listing(repo.path) == before


def test_locks_that_no_other_process_sees(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that grants every lock."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["locks", "repository lock"]
    assert verdict_of(found, "locks")[1] == f"a second process does not see a lock in {repo.path}"


def test_orphans_come_to_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or not, which is a note; this process is none the wiser."""
    assert probes.subreaper().verdict == "ok"
    monkeypatch.setattr(process_tree, "become_subreaper", lambda: None)
    assert probes.subreaper().verdict == "note"


# Sandboxes


def test_a_bubblewrap_that_works_or_fails(repo: Repo, host: Path, tmp_path: Path) -> None:
    """It is tried: a program of this name proves nothing. Without it a session works, so it is a note."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").symlink_to(shutil.which("git") or "")
    (programs / "bwrap").write_text("#!/bin/sh\n")
    (programs / "bwrap").chmod(0o755)

    def check() -> tuple[str, str]:
        return verdict_of(examine(repo.path, with_environ(PATH=os.fspath(programs)), host), "bubblewrap")

    assert check() == ("ok", f"{programs}/bwrap makes sandboxes")
    (programs / "bwrap").write_text("#!/bin/sh\necho no namespaces >&2; exit 1\n")
    assert check() == ("note", "bubblewrap makes no sandbox here: no namespaces")
    (programs / "bwrap").unlink()
    assert check() == ("note", "bubblewrap is not installed")


@pytest.mark.parametrize(
    ("abi", "verdict"),
    [
        (7, ("ok", "ABI 7")),
        (4, ("ok", "ABI 4; it stops no signals to other processes")),
        (0, ("note", "the kernel has none")),
    ],
)
def test_landlock(
    repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch, abi: int, verdict: tuple[str, str]
) -> None:
    """Its version says what it stops."""
    monkeypatch.setattr(launcher, "landlock_abi", lambda: abi)
    assert verdict_of(examine(repo.path, os.environ, host), "Landlock") == verdict
