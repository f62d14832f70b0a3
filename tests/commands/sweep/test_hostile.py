"""A sweep that meets damaged or forged records, locks and registrations."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.needs import needs_other_users
from tests.support.orphans import Orphan, orphan, sweep
from tests.support.repo import make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo

SOMEBODY, SOMEBODY_ELSE = 4321, 4322  # user ids


def _replace(path: Path, kind: str, elsewhere: Path) -> None:
    """Put something else in the place of a file; what it held is *elsewhere*."""
    content = path.read_bytes()
    elsewhere.write_bytes(content)
    path.unlink()
    match kind:
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "empty":
            path.touch()
        case "garbage":
            path.write_bytes(b"\xff\0garbage\n" * 100)
        case "symlink":
            path.symlink_to(elsewhere)
        case "dangling":
            path.symlink_to(elsewhere.with_name("nowhere"))
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "absent":
            pass


KINDS = ("truncated", "empty", "garbage", "symlink", "dangling", "directory", "fifo")


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_record_is_reported_and_not_touched(repo: Repo, tmp_path: Path, kind: str) -> None:
    """Its state is unreadable: the sweep leaves the record and the worktree that it named."""
    left = orphan(repo)
    _replace(left.record, kind, tmp_path / "good")
    before = listing(repo.path)
    swept = sweep(repo)
    assert swept.status == 0
    identity, state, action, note = swept.stdout.decode().rstrip("\n").split("  ")
    assert (identity, state, action, bool(note)) == (left.id, "unreadable", "left", True)
    assert listing(repo.path) == before


@pytest.mark.parametrize("kind", ["symlink", "dangling", "directory", "absent"])
def test_a_damaged_lock_is_reported_and_not_touched(repo: Repo, tmp_path: Path, kind: str) -> None:
    """Without the lock that its owner held, there is no proof that the owner is dead."""
    left = orphan(repo)
    _replace(left.lock, kind, tmp_path / "good")
    before = listing(repo.path)
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  unreadable  left\n")
    assert listing(repo.path) == before


@pytest.mark.parametrize("kind", ["fifo"])
def test_a_lock_that_is_no_file_does_not_hang_a_sweep(repo: Repo, tmp_path: Path, kind: str) -> None:
    """The sweep does not wait for the other end of a FIFO."""
    left = orphan(repo)
    _replace(left.lock, kind, tmp_path / "good")
    before = listing(repo.path)
    assert sweep(repo).status in {0, 5}
    assert listing(repo.path) == before


def test_the_content_of_a_lock_does_not_matter(repo: Repo) -> None:
    """Only its holder does."""
    left = orphan(repo)
    left.lock.write_bytes(b"\xff\0garbage\n")
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


@pytest.mark.parametrize("kind", ["truncated", "garbage"])
def test_a_lock_that_was_replaced_is_not_touched(repo: Repo, tmp_path: Path, kind: str) -> None:
    """Its owner may hold the one that was there before: foreign."""
    left = orphan(repo)
    kept = tmp_path / "kept"
    kept.hardlink_to(left.lock)  # or its inode number would be given to the next file
    _replace(left.lock, kind, tmp_path / "good")
    before = listing(repo.path)
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  elsewhere  left\n")
    assert listing(repo.path) == before


@pytest.mark.parametrize("name", ["gitdir", "commondir", "HEAD", "index"])
@pytest.mark.parametrize("kind", [*KINDS, "absent"])
def test_a_damaged_registration_loses_no_work(repo: Repo, tmp_path: Path, name: str, kind: str) -> None:
    """Either everything is saved, or the worktree stays as it is and the sweep gives the reason."""
    left = orphan(repo, work="echo staged > staged; git add staged; echo new > new")
    files = listing(left.worktree)
    _replace(left.registration / name, kind, tmp_path / "good")
    swept = sweep(repo)
    assert "raceback" not in swept.stderr
    if left.worktree.exists():
        assert swept.status == 5
        assert swept.stdout.decode().rstrip("\n").split("  ")[-1]
        assert listing(left.worktree) == files
        assert left.registration.exists()
    else:
        assert swept.status == 0
        assert (repo.show(f"{left.wip}:staged"), repo.show(f"{left.wip}:new")) == (b"staged\n", b"new\n")


@pytest.mark.parametrize("kind", [*KINDS, "absent"])
def test_a_damaged_git_file_loses_no_work(repo: Repo, tmp_path: Path, kind: str) -> None:
    """The sweep knows the directory by its inode, and saves the work. A directory in its place stays."""
    left = orphan(repo)
    _replace(left.worktree / ".git", kind, tmp_path / "good")
    swept = sweep(repo)
    assert "raceback" not in swept.stderr
    assert repo.show(f"{left.wip}:new") == b"new\n"
    kept = kind == "directory"
    assert (swept.status, left.worktree.exists()) == ((5, True) if kept else (0, False))


@pytest.mark.parametrize("kind", [*KINDS, "absent"])
def test_a_damaged_git_file_without_a_known_inode_loses_no_work(
    repo: Repo, tmp_path: Path, kind: str
) -> None:
    """Without the inode the directory does not say whose it is any more: kept."""
    left = orphan(repo)
    left.change(worktree_inode=0)
    _replace(left.worktree / ".git", kind, tmp_path / "good")
    before = listing(left.worktree)
    swept = sweep(repo)
    assert "raceback" not in swept.stderr
    assert (swept.status, listing(left.worktree)) == (5, before)
    assert "  kept  " in swept.stdout.decode()


def test_a_deleted_worktree_is_reported(repo: Repo) -> None:
    """Without a hard link in its registration, it may have been moved: the session stays, and its branch."""
    left = orphan(repo)
    (left.registration / "ralph-wrap-anchor").unlink()
    shutil.rmtree(left.worktree)
    swept = sweep(repo)
    assert (swept.status, "its worktree was moved or replaced" in swept.stdout.decode()) == (5, True)
    assert left.branch in repo.branches()


def test_a_directory_of_the_session_that_is_a_symlink_is_not_followed(repo: Repo, tmp_path: Path) -> None:
    """Nothing is written where it leads."""
    left = orphan(repo)
    away = Path(shutil.move(left.directory, tmp_path / "away"))
    left.directory.symlink_to(away)
    before = listing(away), listing(left.worktree)
    swept = sweep(repo)
    assert swept.status == 5
    assert "the session's directory was replaced" in swept.stdout.decode()
    assert (listing(away), listing(left.worktree)) == before


def test_a_trash_that_is_a_symlink_is_not_followed(repo: Repo, tmp_path: Path) -> None:
    """Nothing is moved there, nothing is deleted there, and what was to go there stays."""
    left = orphan(repo)
    trash = repo.path / ".ralph" / "run" / "trash"
    trash.rmdir()
    away = tmp_path / "away"
    (away / "20260102T030405Z-beef").mkdir(parents=True)
    trash.symlink_to(away)
    sweep(repo)
    assert [*away.iterdir()] == [away / "20260102T030405Z-beef"]
    assert (left.worktree / "new").read_bytes() == b"new\n"


def test_a_symlinked_ralph_directory_is_not_followed(repo: Repo, tmp_path: Path) -> None:
    """It may lead to the files of another user."""
    left = orphan(repo)
    shutil.move(repo.path / ".ralph", tmp_path / "away")
    (repo.path / ".ralph").symlink_to(tmp_path / "away")
    before = listing(tmp_path / "away")
    swept = sweep(repo)
    assert (swept.status, swept.stdout) == (0, b"")
    assert listing(tmp_path / "away") == before
    assert left.branch in repo.branches()


@pytest.fixture
def given_away() -> Iterator[Callable[[str], Orphan]]:
    """Yield a function that makes an orphan in a project of another user, one file of it of a third one."""
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)

        def make(which: str) -> Orphan:
            repo = make_repo(Path(temporary, "project"))
            left = orphan(repo)
            for path in (repo.path, *repo.path.rglob("*")):
                os.lchown(path, SOMEBODY, SOMEBODY)
            file = {"record": left.record, "lock": left.lock, "work": left.worktree / "new"}[which]
            os.chown(file, SOMEBODY_ELSE, SOMEBODY_ELSE)
            file.chmod(0o600)
            return left

        yield make


@needs_other_users
def test_an_unreadable_record_of_another_user_is_not_touched(
    given_away: Callable[[str], Orphan],
) -> None:
    """Unknown, and said."""
    left = given_away("record")
    before = listing(left.repo.path / ".ralph")
    swept = sweep(left.repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.id}  unreadable  left  Permission denied\n")
    assert listing(left.repo.path / ".ralph") == before


@needs_other_users
def test_an_unreadable_lock_of_another_user_is_not_touched(
    given_away: Callable[[str], Orphan],
) -> None:
    """The same of a lock."""
    left = given_away("lock")
    before = listing(left.repo.path / ".ralph")
    swept = sweep(left.repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  unreadable  left\n")
    assert listing(left.repo.path / ".ralph") == before


@needs_other_users
def test_a_worktree_with_files_that_cannot_be_read_is_kept(given_away: Callable[[str], Orphan]) -> None:
    """A file that cannot be read cannot be saved."""
    left = given_away("work")
    swept = sweep(left.repo)
    assert (swept.status, "  kept  " in swept.stdout.decode()) == (5, True)
    assert (left.worktree / "new").read_bytes() == b"new\n"


# Records that are whole, but lie

LIES: dict[str, dict[str, object]] = {
    "the branch of the user": {"branch": "main"},
    "the branch of the user, as if new": {"branch": "main", "state": "starting"},
    "a branch elsewhere": {"branch": "../x"},
    "a branch that is an option": {"branch": "-x"},
    "a branch that is a path": {"branch": "/etc/passwd"},
    "a branch that is a pattern": {"branch": "*"},
    "a branch that is a revision": {"branch": "ralph/x..main"},
    "a branch with a newline": {"branch": "main\nmain"},
    "an empty branch": {"branch": ""},
    "a base that is an option": {"base": "--output=stolen"},
    "a base that is a name": {"base": "main"},
    "a base that is nothing": {"base": "0" * 40},
    "a base with a newline": {"base": "main\n--output=stolen"},
    "an empty base": {"base": ""},
    "no branch": {"branch": None},
    "no base": {"base": None},
    "the user's checkout": {"workspace": "{project}"},
    "another user's directory": {"workspace": "{victim}"},
    "a workspace that climbs": {"workspace": "{project}/.ralph/worktrees/../../../victim"},
    "no workspace": {"workspace": None},
    "a state that is not known": {"state": "../x"},
    "the pid of another process": {"pid": 1},
    "a pid that is no pid": {"pid": -1},
    "an agent that is long": {"agent": "x" * 100_000},
    "a number of iterations that is long": {"iteration": 10**30},
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return a directory that has nothing to do with any of this."""
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "precious").write_text("precious\n")
    return directory


@pytest.fixture
def deceived(repo: Repo, victim: Path) -> Callable[..., Orphan]:
    """Return a function that makes an orphan whose record lies."""

    def make(lie: dict[str, object]) -> Orphan:
        left = orphan(repo)
        names = {"project": repo.path, "victim": victim}
        left.change(
            **{key: value.format(**names) if isinstance(value, str) else value for key, value in lie.items()}
        )
        return left

    return make


def _outside(repo: Repo, victim: Path) -> dict[str, object]:
    """Return everything that no record may lead us to."""
    refs = repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {
        **repo.fingerprint(),
        "refs": [ref for ref in refs if not ref.startswith(("refs/heads/ralph/", "refs/ralph/"))],
        "victim": listing(victim),
        "beside": sorted(path.name for path in repo.path.parent.iterdir()),
        "files": listing(repo.path, without={".git", ".ralph"}),
    }


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_no_record_leads_out(
    repo: Repo, victim: Path, deceived: Callable[..., Orphan], lie: dict[str, object]
) -> None:
    """No path leaves ``.ralph/``, no ref leaves ``ralph/``, no work is lost, whatever stands in a record."""
    left = deceived(lie)
    before = _outside(repo, victim)
    swept = sweep(repo)
    assert (swept.status in {0, 5}, "raceback" in swept.stderr) == (True, False), swept.stderr
    assert _outside(repo, victim) == before
    if left.worktree.exists():
        assert (left.worktree / "new").read_bytes() == b"new\n"
    else:
        assert repo.show(f"{left.wip}:new") == b"new\n"
    # And the next one says no more of it, or the same.
    assert sweep(repo).status in {0, swept.status}
    assert _outside(repo, victim) == before


def test_a_record_of_another_name_finishes_no_session(repo: Repo) -> None:
    """Copied under another id, with a lock that is free: it does not speak for that one."""
    left = orphan(repo)
    copy = left.record.with_name("beef.json")
    shutil.copy(left.record, copy)
    copy.with_suffix(".lock").touch()
    left.move_owner_away()
    before = listing(repo.path)
    swept = sweep(repo)
    assert swept.status == 0
    assert {row.split("  ")[1] for row in swept.stdout.decode().splitlines()} == {"elsewhere", "unreadable"}
    assert listing(repo.path) == before


def test_a_record_cannot_name_the_worktree_of_a_live_session(repo: Repo) -> None:
    """Its own session id names the worktree, whose mark names the branch; a record leads nowhere else."""
    left = orphan(repo)
    other = left.worktree.with_name("20260102T030405Z-beef")
    repo.git("worktree", "add", "-q", "-b", "other", other)
    (other / "precious").write_text("precious\n")
    left.change(workspace=os.fspath(other), branch="other")
    before = listing(other), listing(left.worktree)
    assert sweep(repo).status == 5
    assert (listing(other), listing(left.worktree)) == before
    assert "other" in repo.branches()


def test_a_lie_about_the_state_does_not_pass_for_an_empty_checkout(repo: Repo) -> None:
    """The record says that no agent has worked there; the sweep still saves what it finds."""
    left = orphan(repo, work="echo changed > file.txt; echo new > new; git rm -q --cached file.txt")
    left.change(state="starting")
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert repo.show(f"{left.wip}:file.txt") == b"changed\n"


def test_files_that_are_no_records_are_left_alone(repo: Repo) -> None:
    """Whatever their names are."""
    left = orphan(repo)
    agents = left.record.parent
    names = ("README", "beef.txt", ".json", "..json", "BEEF.json", "x.lock.d", "a b.json")
    for name in names:
        (agents / name).write_text(json.dumps({"version": 1}))
    assert sweep(repo).status == 0
    assert {*names} <= {path.name for path in agents.iterdir()}


def test_locks_that_are_not_ours_are_left_alone(repo: Repo) -> None:
    """Only a lock that bears an id can be one of ours."""
    left = orphan(repo)
    agents = left.record.parent
    names = ("mine.lock", "*.lock", "BEEF.lock", "beef0.lock", "[a-f]*.lock")
    for name in names:
        (agents / name).write_text("mine\n")
    empty = left.directory.with_name("20260102T030405Z-mine")
    empty.mkdir()
    assert sweep(repo).status == 0
    assert {*names} <= {path.name for path in agents.iterdir()}
    assert empty.is_dir()


def test_a_forged_report_does_not_stop_a_sweep(repo: Repo) -> None:
    """Its keys name no files, and the session is finished once and for all."""
    left = orphan(repo)
    told: dict[str, object] = {"version": 1, "id": left.id, "session": left.session, "agent": "sh"}
    told |= {"started": "", "ended": "", "ended_by": "promise", "exit_status": 0, "iterations": 1}
    report = left.directory / "report.json"
    report.write_text(json.dumps(told | {"taken_up": {"a/b": ["x"] * 1500}}))
    swept = sweep(repo)
    assert (swept.status, left.is_there()) == (0, False), swept.stderr
    assert repo.show(f"{left.wip}:new")
