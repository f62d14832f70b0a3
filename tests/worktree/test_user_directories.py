"""What a user puts where ralph-wrap keeps its own directories stays as it is, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree import temporary
from tests.support.directory_listing import listing
from tests.support.git_shim import shim_git
from tests.support.merging import branch
from tests.support.orphans import orphan, sweep
from tests.support.processes import left
from tests.support.sessions import command, run
from tests.support.user_worktrees import CASES, KINDS, REGISTRATIONS, WAYS, Stranger, replaced, stranger
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.worktree.user_directories import in_place_of

SESSION = "20260102T030405Z-beef"

RUN = Path(".ralph/run")

pytestmark = pytest.mark.usefixtures("ended", "trusted")


def json_of(repo: Repo, *words: str) -> tuple[int, str]:
    """Return the exit status and the error code of a command; no code if there was no error."""
    result = command(*words, cwd=repo.path)
    document = json.loads(result.stdout)
    return result.status, "" if document["success"] else document["error"]["code"]


# -- worktrees of other programs --


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_cleanup(repo: Repo, tmp_path: Path, kind: str, way: str, force: list[str]) -> None:
    """Not even by force: the directory at the path has no mark, or is no worktree."""
    created = command("worktree", "create", "task", cwd=repo.path)
    path = Path(json.loads(created.stdout)["data"]["path"])
    found = stranger(kind, repo, tmp_path / "theirs")
    for registration in REGISTRATIONS:
        with replaced(repo, path, tmp_path / "away", registration, found, way):
            before = found.contents(path), listing(tmp_path / "away")
            status, code = json_of(repo, "worktree", "cleanup", str(path), *force)
            assert (status, code) in {(7, "not_ours"), (4, "not_found"), (5, "refused")}, registration
            assert (found.contents(path), listing(tmp_path / "away")) == before, registration
    assert command("worktree", "cleanup", path, cwd=repo.path).status == 0


@pytest.mark.parametrize("way", WAYS)
def test_cleanup_of_the_worktree_of_a_session(repo: Repo, tmp_path: Path, way: str) -> None:
    """It is not for ``cleanup``, wherever it is."""
    created = command("worktree", "create", "task", cwd=repo.path)
    path = Path(json.loads(created.stdout)["data"]["path"])
    left_over = orphan(repo)
    with in_place_of(path, tmp_path / "away", Stranger(left_over.worktree, repo), way):
        assert json_of(repo, "worktree", "cleanup", str(path), "--force")[0] in {4, 5, 7}


@pytest.mark.parametrize("discard", [[], ["--discard-changes"]])
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_exit(repo: Repo, tmp_path: Path, kind: str, way: str, discard: list[str]) -> None:
    """The session has entered another worktree, which was moved away."""
    entered = command("worktree", "enter", "--session", "me", "name", cwd=repo.path)
    path = Path(json.loads(entered.stdout)["data"]["path"])
    found = stranger(kind, repo, tmp_path / "theirs")
    words = ("worktree", "exit", "--session", "me", "--action", "remove", *discard)
    for registration in [one for one in REGISTRATIONS if one != "repaired"]:
        with replaced(repo, path, tmp_path / "away", registration, found, way):
            before = found.contents(path), listing(tmp_path / "away")
            # Without a registration nothing was entered.
            gone = registration == "pruned" or (way == "git worktree move" and kind == KINDS[0])
            status = command(*words, cwd=repo.path).status
            assert status == 0 if gone else status in {4, 5, 7}, registration
            assert (found.contents(path), listing(tmp_path / "away")) == before, registration
    assert command(*words, cwd=repo.path).status == 0


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_exit_of_a_worktree_that_was_moved_and_repaired(
    repo: Repo, tmp_path: Path, kind: str, way: str
) -> None:
    """Its registration says where it is now: it is removed there, and what is in its old place stays."""
    entered = command("worktree", "enter", "--session", "me", "name", cwd=repo.path)
    path = Path(json.loads(entered.stdout)["data"]["path"])
    found = stranger(kind, repo, tmp_path / "theirs")
    path.rename(tmp_path / "away")
    repo.git("worktree", "repair", tmp_path / "away")
    with in_place_of(path, tmp_path / "nothing", found, way):
        words = ("worktree", "exit", "--session", "me", "--action", "remove")
        assert command(*words, cwd=repo.path).status == 0
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_from_the_trash_is_the_worktree_itself(repo: Repo, tmp_path: Path, kind: str) -> None:
    """Killed while it removed one; a user has put something else in its place in the trash."""
    created = command("worktree", "create", "task", cwd=repo.path)
    path = Path(json.loads(created.stdout)["data"]["path"])
    environ = {"PATH": shim_git(tmp_path / "shim", '*" worktree remove "*) kill -9 $PPID $$ ;;')}
    command("worktree", "cleanup", path, "--force", cwd=repo.path, env=environ)
    (leaving,) = repo.path.glob(".ralph/run/trash/*.leaving")
    found = stranger(kind, repo, tmp_path / "theirs")
    with in_place_of(leaving, tmp_path / "away", found, "mv"):
        assert command("worktree", "cleanup", path, cwd=repo.path).status == 4
        assert command("worktree", "enter", "--session", "me", "name", cwd=repo.path).status == 0
        assert not path.exists()
    assert command("worktree", "cleanup", path, cwd=repo.path).status == 0
    assert not path.exists()


# -- the pool --


def configure(repo: Repo, size: int) -> None:
    """Set the size of the pool."""
    repo.write(".ralph/config.toml", f"pool = {size}\n")


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_the_pool(repo: Repo, tmp_path: Path, home: Path, kind: str, way: str) -> None:
    """No session takes it, and neither a fill nor an emptying removes it."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("rule")
    configure(repo, 1)
    assert command("pool", "--fill", cwd=repo.path).status == 0
    (warm,) = repo.path.glob(".ralph/run/pool/warm-*")
    found = stranger(kind, repo, tmp_path / "theirs")
    if found.registration is not None:  # its index is as one would be that was made for the pool
        (found.path / "file.txt").write_text("one\n")
    for registration in REGISTRATIONS:
        configure(repo, 1)
        with replaced(repo, warm, tmp_path / "away", registration, found, way):
            before = found.contents(warm), listing(tmp_path / "away")
            ended = run(repo.path, "-n", "1", "--", "true")
            assert ended.status == 0, registration
            (made,) = [event for event in ended.events if event["event"] == "workspace.created"]
            assert made["warm"] is False, registration
            eventually(lambda: left(home) == {}, "the pool to be filled", 30)
            configure(repo, 0)
            assert command("pool", "--fill", cwd=repo.path).status == 0
            assert (found.contents(warm), listing(tmp_path / "away")) == before, registration
    assert command("pool", "--fill", cwd=repo.path).status == 0
    assert not warm.exists()


def test_a_warm_worktree_that_a_user_has_locked_is_theirs(repo: Repo, home: Path) -> None:
    """No session gets it, and it is not removed."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("rule")
    configure(repo, 1)
    command("pool", "--fill", cwd=repo.path)
    (warm,) = repo.path.glob(".ralph/run/pool/warm-*")
    repo.git("worktree", "unlock", warm)
    repo.git("worktree", "lock", "--reason", "mine", warm)
    before = listing(warm)
    run(repo.path, "-n", "1", "--", "true")
    configure(repo, 0)
    command("pool", "--fill", cwd=repo.path)
    eventually(lambda: left(home) == {}, "the pool to be filled", 30)
    assert listing(warm) == before


def test_what_a_user_has_put_beside_directories_that_are_kept_for_the_pool(repo: Repo) -> None:
    """It is given to no worktree, and stays."""
    repo.write(".gitignore", ".ralph/\nbuild/\n")
    repo.commit("rule")
    repo.write(".ralph/config.toml", 'pool = 1\npool_keep = ["build"]\n')
    mine = repo.write(f".ralph/run/pool/kept/{SESSION}/build/mine", "the user's own\n")
    filled = command("pool", "--fill", cwd=repo.path)
    assert (filled.status, mine.read_text()) == (0, "the user's own\n")
    assert f"ralph-wrap did not make {mine.parent}" in filled.stderr


# -- temporary worktrees of a merge --


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "not registered"])
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_merge(repo: Repo, tmp_path: Path, kind: str, way: str, registered: bool) -> None:
    """In the place of a temporary worktree that a merge has left which was killed."""
    directory = repo.path / RUN / "landing" / "land-00000001"
    directory.parent.mkdir(parents=True)
    if registered:
        reason = temporary.REASON
        repo.git("worktree", "add", "-q", "--detach", "--lock", "--reason", reason, directory)
    found = stranger(kind, repo, tmp_path / "theirs")
    for number, registration in enumerate(REGISTRATIONS if registered else REGISTRATIONS[:1]):
        branch(repo, f"aaa{number}", {f"new{number}": "new\n"})
        with (
            replaced(repo, directory, tmp_path / "away", registration, found, way)
            if registered
            else in_place_of(directory, tmp_path / "away", found, way)
        ):
            before = found.contents(directory)
            assert sweep(repo).status == 0
            merged = command("merge", f"aaa{number}", cwd=repo.path)
            assert merged.status == 0, merged.stderr
            assert found.contents(directory) == before, registration
        assert (repo.path / f"new{number}").read_text() == "new\n"


def test_a_directory_that_bears_the_name_in_the_note_of_a_merge(repo: Repo) -> None:
    """It is not where the merge has worked."""
    tip = branch(repo, "aaaa", {"new": "new\n"})
    name = "land-00000001"
    mine = repo.write(f".ralph/run/{name}/mine", "the user's own\n")
    note = {"version": 1, "ref": "refs/heads/main", "old": repo.head, "new": tip, "scratch": name}
    repo.write(".ralph/run/landing.json", json.dumps(note))
    assert sweep(repo).status == 0
    assert mine.read_text() == "the user's own\n"
    assert not (repo.path / ".ralph/run/landing.json").exists()


# -- dropped branches --


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_drop(repo: Repo, tmp_path: Path, kind: str, way: str) -> None:
    """A branch goes; the directory where its session worked stays."""
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", "echo new > new")
    assert ended.directory is not None
    directory = repo.path / ".ralph/worktrees" / ended.directory.name
    found = stranger(kind, repo, tmp_path / "theirs")
    with in_place_of(directory, tmp_path / "away", found, way):
        dropped = command("drop", "--force", ended.report["id"], cwd=repo.path)
        assert dropped.status == 0, dropped.stderr
