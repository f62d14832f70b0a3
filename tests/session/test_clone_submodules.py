"""``submodules = "init"`` in a private clone: its agent has the submodules, and their work comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.session.test_clone import TRUST, killed, left_over
from tests.support.sessions import command, run
from tests.support.submodules import SUB, make_project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

OPTIONS = ("-n", "1", "--isolation", "clone")
WORK = f"""
cd {SUB}; echo committed >> file.txt; git commit -qam committed; echo changed >> file.txt; echo new > new.txt
"""

pytestmark = pytest.mark.usefixtures("_initialised")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a project with submodules."""
    return make_project(tmp_path).repo


@pytest.fixture
def _initialised(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_TRUST", "1")
    repo.write(".ralph/config.toml", 'submodules = "init"\n')


def _snapshots(repo: Repo, agent_id: str) -> list[str]:
    listed = repo.git("for-each-ref", "--format=%(refname)", f"refs/ralph/snapshots/{agent_id}/submodule-*")
    return listed.split()


def _saved(repo: Repo, agent_id: str) -> tuple[bytes, bytes]:
    """Return the changed and the new file of the submodule, as the project's repository has them."""
    (ref,) = _snapshots(repo, agent_id)
    assert repo.git("log", "--format=%s", f"{ref}^", "-1") == "committed"
    return repo.show(f"{ref}:file.txt"), repo.show(f"{ref}:new.txt")


def test_an_agent_works_in_the_submodules_of_its_clone(repo: Repo) -> None:
    """Nested ones, too; the agent shares no file with the repositories of the project."""
    shared = f"find .git/modules -type f -links +1; cat {SUB}/deep/deep.txt"
    ended = run(repo.path, *OPTIONS, "--", "sh", "-ec", f"{shared}; {WORK}")
    assert (ended.status, ended.stdout) == (0, b"deep\n"), ended.stderr
    assert _saved(repo, ended.report["session"][-4:])[1] == b"new\n"
    assert (ended.report["kept"], left_over(repo)) == (None, [])
    (submodule,) = ended.report["submodules"]
    assert (submodule["path"], submodule["repository"]) == (SUB, str(repo.path / ".git"))


def test_submodules_without_work_leave_nothing(repo: Repo) -> None:
    """Of their commits, none is copied into the repository of the project."""
    ended = run(repo.path, *OPTIONS, "--", "true")
    assert (ended.status, ended.report["submodules"]) == (0, [])
    assert (_snapshots(repo, ended.report["session"][-4:]), left_over(repo)) == ([], [])


def test_a_killed_session_loses_no_work_in_a_submodule(repo: Repo) -> None:
    """The sweep saves it from the files of the clone, and knows what was cloned."""
    session = killed(repo, WORK)
    assert command("sweep", cwd=repo.path, env=TRUST).status == 0
    assert _saved(repo, session[-4:])[1] == b"new\n"
    assert left_over(repo) == []


def test_a_resumed_session_has_the_work_in_its_submodules(repo: Repo) -> None:
    """Changed and new files are in the new clone."""
    work = f"[ -e {SUB}/new.txt ] || {{ {WORK} exit 0; }}; cat {SUB}/new.txt"
    first = run(repo.path, *OPTIONS, "--", "sh", "-ec", work)
    again = command("resume", first.report["session"][-4:], "-n", "1", cwd=repo.path, env=TRUST)
    assert (again.status, again.stdout) == (0, b"new\n"), again.stderr


def test_progress_in_a_submodule_counts(repo: Repo) -> None:
    """An iteration that only changes a file in a submodule is no stall."""
    work = f"echo $RALPH_ITERATION > {SUB}/new.txt"
    ended = run(repo.path, "-n", "3", "--max-stalls", "1", "--isolation", "clone", "--", "sh", "-ec", work)
    assert ended.ending == ("max-iterations", 3, 0)


@pytest.mark.parametrize("program", ["filter.x.clean", "core.fsmonitor", "diff.external"])
def test_no_program_of_the_submodule_runs(repo: Repo, program: str, tmp_path: Path) -> None:
    """Our git works in the replica, which has a configuration of ours."""
    ran = tmp_path / "ran"
    work = f"""{WORK}
    git config {program} 'touch {ran}; cat'; mkdir -p "$(git rev-parse --git-dir)/info"
    echo '* filter=x' > "$(git rev-parse --git-dir)/info/attributes"; rm -f {ran}
    """
    ended = run(repo.path, *OPTIONS, "--", "sh", "-ec", work)
    assert (ended.status, ended.report["kept"], ran.exists()) == (0, None, False), ended.stderr
    assert _saved(repo, ended.report["session"][-4:])[1] == b"new\n"


@pytest.mark.parametrize("damage", ["ln -s /etc hooked", "mkfifo fifo", "mv objects o; ln -s o objects"])
def test_a_damaged_repository_of_a_submodule_keeps_the_clone(repo: Repo, damage: str) -> None:
    """Nothing in it is followed, and nothing is lost."""
    work = f'{WORK} cd "$(git rev-parse --git-dir)"; {damage}'
    ended = run(repo.path, *OPTIONS, "--", "sh", "-ec", work)
    assert ended.report["kept"], ended.stderr
    (clone,) = [path for path in (repo.path / ".ralph/clones").iterdir() if path.is_dir()]
    assert (clone / SUB / "new.txt").read_text() == "new\n"


@pytest.mark.parametrize(
    "left",
    [
        "mkdir -p lfs/objects/aa/bb; echo large > lfs/objects/aa/bb/aabb",
        "git worktree add -q --detach $APART",
    ],
    ids=["lfs", "worktree"],
)
def test_what_only_the_repository_of_a_submodule_has_keeps_the_clone(
    repo: Repo, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica has neither the large files of git-lfs nor the worktrees of the repository."""
    monkeypatch.setenv("APART", str(tmp_path / "apart"))
    work = f'{WORK} cd "$(git rev-parse --git-dir)"; {left}'
    ended = run(repo.path, *OPTIONS, "--", "sh", "-ec", work)
    assert "which is not saved" in ended.report["kept"], ended.stderr
    (clone,) = [path for path in (repo.path / ".ralph/clones").iterdir() if path.is_dir()]
    assert [*clone.glob(".git/modules/**/lfs/objects/aa/bb/aabb"), *clone.glob(".git/modules/**/worktrees/*")]
