"""An agent deletes or replaces the ``.git`` file of its worktree."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import TRUSTED
from tests.support.directory_listing import listing
from tests.support.orphans import Orphan, orphan, sweep
from tests.support.repo import make_repo
from tests.support.sessions import PROGRAM, Result, command, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

WAYS = {
    "deleted": "rm .git",
    "another repository": 'echo "gitdir: $OTHER/.git" > .git',
    "emptied": ": > .git",
    "a symlink": "rm .git; ln -s $OTHER/.git .git",
    "a FIFO": "rm .git; mkfifo .git",
    "not readable": "chmod 0 .git; mv .git old; : > .git; chmod 0 .git",
}
ELSEWHERE = ("another repository", "a symlink")
COMMIT = 'echo $1 > $1; git add -A && git commit -qm "$1"'
OWN_REPOSITORY = "rm .git; git init -q; echo new > new; git add -A; git commit -qm own"


def first_breaks(how: str) -> str:
    """Return an agent that breaks the file in its first iteration, and commits in each further one."""
    return f'[ "$RALPH_ITERATION" = 1 ] && {{ echo first > first; {how}; exit 0; }}; set -- second; {COMMIT}'


@pytest.fixture
def broken(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> Callable[..., Result]:
    """Return a function that runs a session whose agent breaks the file."""
    other = make_repo(tmp_path / "other")

    def run_it(body: str, *options: str) -> Result:
        return run(repo.path, *options, "--", script(body), env={"OTHER": str(other.path)})

    return run_it


@pytest.mark.parametrize("way", WAYS)
def test_the_next_iteration_commits_on_its_own_branch(
    repo: Repo, tmp_path: Path, broken: Callable[..., Result], way: str
) -> None:
    """The session has written the file back, and says so; nothing of the user's has changed."""
    repo.write("staged", "the user's own\n")
    repo.git("add", "staged")
    before, other = repo.fingerprint(), head_of_other(tmp_path)
    ended = broken(first_breaks(WAYS[way]), "-n", "2")
    assert ended.ending == ("max-iterations", 2, 0), ended.stderr
    assert ended.report["commits"] == 1
    assert repo.show(f"{ended.report['branch']}:first") == b"first\n"
    assert repo.show(f"{ended.report['branch']}:second") == b"second\n"
    assert (repo.fingerprint(), head_of_other(tmp_path)) == (before, other)
    assert [warning["event"] for warning in ended.warnings] == ["worktree.mended"]
    assert repo.worktrees() == []


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_a_session_saves_and_removes_the_worktree(
    repo: Repo, broken: Callable[..., Result], way: str
) -> None:
    """The last iteration has broken the file."""
    ended = broken(f"echo new > new; {WAYS[way]}", "-n", "1")
    assert ended.ending == ("max-iterations", 1, 0), ended.stderr
    assert repo.show(f"{ended.report['saved']}:new") == b"new\n"
    assert ended.report["kept"] is None
    assert repo.worktrees() == []


def test_a_commit_after_that_does_not_reach_the_users_branch(
    repo: Repo, broken: Callable[..., Result]
) -> None:
    """In the same iteration: git does not look above the worktree."""
    before = repo.fingerprint()
    ended = broken(f"rm .git; set -- new; {COMMIT}", "-n", "1")
    assert repo.fingerprint() == before
    assert repo.show(f"{ended.report['saved']}:new") == b"new\n"


def test_the_users_own_limit_of_the_search_stays(repo: Repo, script: Callable[[str], str]) -> None:
    """Ours comes before it."""
    agent = script('echo "$GIT_CEILING_DIRECTORIES"')
    ended = run(repo.path, "-n", "1", "--", agent, env={"GIT_CEILING_DIRECTORIES": "/a:/b"})
    assert ended.stdout.decode() == f"{repo.path}/.ralph/worktrees:/a:/b\n"


def test_a_repository_of_the_agents_own_ends_the_loop(repo: Repo, broken: Callable[..., Result]) -> None:
    """Its commits would be on no branch of the session. The files are saved, and the repository stays."""
    ended = broken(OWN_REPOSITORY, "-n", "3")
    assert ended.ending == ("leak", 1, 125), ended.stderr
    assert repo.show(f"{ended.report['saved']}:new") == b"new\n"
    kept = Orphan(repo, ended.report["session"]).worktree
    assert repo.git("log", "--format=%s", cwd=kept) == "own"
    assert ended.report["kept"] == f"{kept}/.git is a repository of its own now, which may hold commits"


def test_the_hint_for_such_a_worktree_leads_to_its_end(repo: Repo, broken: Callable[..., Result]) -> None:
    """The command that is printed moves the repository aside, and removes the worktree."""
    ended = broken(OWN_REPOSITORY, "-n", "1")
    (hint,) = [warning["hint"] for warning in ended.warnings if warning["event"] == "worktree.kept"]
    kept = Orphan(repo, ended.report["session"]).worktree
    refused = command("rm", ended.report["id"], cwd=repo.path)
    assert refused.status == 5
    assert hint in refused.stderr
    assert "git worktree remove" not in refused.stderr
    assert hint == ended.report["way_out"]
    subprocess.run(
        ("sh", "-c", hint.replace("ralph-wrap rm", f"{shlex.quote(PROGRAM)} rm")), check=True, cwd=repo.path
    )
    assert not kept.exists()
    assert repo.git("--git-dir", kept.with_name(f"{kept.name}.git"), "log", "--format=%s") == "own"
    assert repo.show(f"{ended.report['saved']}:new") == b"new\n"


def test_a_setup_that_makes_a_repository_of_its_own_ends_the_session(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """No agent starts in it."""
    repo.write(".ralph/config.toml", f'setup = "{OWN_REPOSITORY}"\n')
    ended = run(repo.path, "-n", "1", "--", script("echo started"), env=TRUSTED)
    assert (ended.status, ended.stdout) == (125, b"")
    assert ended.report["ended_by"] == "leak"


def _break(left: Orphan, tmp_path: Path, way: str) -> None:
    make_repo(tmp_path / "other")
    others = {"OTHER": str(tmp_path / "other")}
    subprocess.run(("sh", "-c", WAYS[way]), check=True, cwd=left.worktree, env={**os.environ, **others})


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ELSEWHERE])
def test_a_sweep_writes_the_file_of_a_dead_session_back(repo: Repo, tmp_path: Path, way: str) -> None:
    """It knows the directory by inode and birth time: the work is saved, and the worktree removed."""
    left = orphan(repo)
    _break(left, tmp_path, way)
    swept = sweep(repo)
    assert swept.status == 0, swept.stderr
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert not left.worktree.exists()


@pytest.mark.parametrize("way", ELSEWHERE)
def test_a_sweep_leaves_the_worktree_of_another_repository(repo: Repo, tmp_path: Path, way: str) -> None:
    """Nobody knows whether the agent or the user has led it there: nothing in it is touched."""
    left = orphan(repo)
    _break(left, tmp_path, way)
    before = listing(left.worktree)
    swept = sweep(repo)
    assert (swept.status, listing(left.worktree)) == (5, before)
    assert "its worktree was moved or replaced" in swept.stdout.decode()


@pytest.mark.parametrize("content", ["plain files", "a worktree of another repository"])
def test_a_sweep_leaves_a_new_directory_with_the_inode_of_the_old_one(
    repo: Repo, tmp_path: Path, content: str
) -> None:
    """File systems give the inode of a deleted directory to the next one. This one is the user's."""
    left = orphan(repo)
    shutil.rmtree(left.worktree)
    if content == "plain files":
        left.worktree.mkdir()
    else:
        make_repo(tmp_path / "other").git("worktree", "add", "-q", str(left.worktree))
    (left.worktree / "precious").write_text("the user's\n")
    left.change(worktree_inode=left.worktree.stat().st_ino)
    before = listing(left.worktree)
    swept = sweep(repo)
    assert (swept.status, listing(left.worktree)) == (5, before)
    assert "its worktree was moved or replaced" in swept.stdout.decode()


def test_a_sweep_leaves_a_directory_that_another_registration_names(repo: Repo) -> None:
    """A worktree of the user's may be there."""
    left = orphan(repo)
    (left.worktree / ".git").unlink()
    shutil.copytree(left.registration, left.registration.with_name("users"))
    before = listing(left.worktree)
    assert sweep(repo).status == 5
    assert listing(left.worktree) == before


def test_what_was_in_the_place_of_the_file_is_kept(repo: Repo, broken: Callable[..., Result]) -> None:
    """It lies beside the worktree, and the warning names it. A second one does not replace the first."""
    ended = broken('rm .git; echo "word $RALPH_ITERATION" > .git', "-n", "2")
    assert ended.ending == ("max-iterations", 2, 0), ended.stderr
    worktree = Orphan(repo, ended.report["session"]).worktree
    first, second = (worktree.with_name(f"{worktree.name}{end}.git") for end in ("", "-2"))
    assert (first.read_text(), second.read_text()) == ("word 1\n", "word 2\n")
    for aside, warning in zip((first, second), ended.warnings, strict=True):
        assert f"(that is {aside} now)" in warning["message"]


def test_a_sweep_keeps_a_repository_of_the_agents_own(repo: Repo) -> None:
    """The files of a dead session are saved beside it."""
    left = orphan(repo)
    (left.worktree / ".git").unlink()
    repo.git("init", "-q", cwd=left.worktree)
    repo.git("commit", "-q", "--allow-empty", "-m", "own", cwd=left.worktree)
    assert sweep(repo).status == 5
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert repo.git("log", "--format=%s", cwd=left.worktree) == "own"


@pytest.mark.parametrize("unknown", ["worktree_inode", "worktree_born"])
def test_a_sweep_knows_no_directory_without_inode_or_birth_time(repo: Repo, unknown: str) -> None:
    """Not every file system tells them: a directory without the file may be anybody's."""
    left = orphan(repo)
    left.change(**{unknown: 0})
    (left.worktree / ".git").unlink()
    assert sweep(repo).status == 5
    assert (left.worktree / "new").read_text() == "new\n"
    assert not (left.worktree / ".git").exists()


def head_of_other(tmp_path: Path) -> str:
    """Return the state of the other repository."""
    return (tmp_path / "other" / ".git" / "refs" / "heads" / "main").read_text()
