"""Sessions in a private clone: the agent never touches the real repository, and no work is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.project import find_project
from ralph_wrap.worktree.retention import expire
from tests.support.sessions import Result, Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

CLONE = ("--isolation", "clone")
TRUST = {"RALPH_TRUST": "1"}
COMMIT = "echo a > a; git add a; git commit -qm a"


def clone_session(repo: Repo, work: str, *options: str) -> Result:
    """Run a session in a clone, whose agent is a shell."""
    return run(repo.path, "-n", "1", *CLONE, *options, "--", "sh", "-ec", work)


def left_over(repo: Repo) -> list[str]:
    """Return what sessions in clones have left on the disk, without their own directories."""
    names = [".ralph/clones", ".ralph/run/replicas", ".ralph/run/bundles", ".ralph/run/agents"]
    return [
        path.relative_to(repo.path).as_posix()
        for name in names
        for path in sorted((repo.path / name).glob("*"))
        if path.name not in {".gitignore", "run"}
    ]


def refs(repo: Repo, prefix: str = "refs") -> list[str]:
    """Return the names of refs."""
    return repo.git("for-each-ref", "--format=%(refname)", prefix).split()


def killed(repo: Repo, work: str, *options: str) -> str:
    """Kill a session in a clone between two iterations, and return its id."""
    with Session(repo.path, "--delay", "1h", *CLONE, *options, "--", "sh", "-ec", work) as session:
        session.wait_for("work.bundled")
        session.send(signal.SIGKILL)
        session.process.wait()
        return session.directory.name


def test_work_comes_out_of_a_clone(repo: Repo) -> None:
    """Commits are on the branch, the rest is on the branch of saved work, and the clone is gone."""
    before = repo.fingerprint()
    result = clone_session(repo, "echo a > a; git add a; git commit -qm a; echo b > b; cat .git/HEAD")
    assert result.status == 0, result.stderr
    agent_id = result.report["session"][-4:]
    assert repo.show(f"ralph/{agent_id}:a") == b"a\n"
    assert repo.show(f"ralph/{agent_id}-wip:b") == b"b\n"
    assert result.report["commits"] == 1
    assert left_over(repo) == []
    assert repo.fingerprint() == before
    assert repo.git("status", "--porcelain") == ""


def test_the_agent_has_a_repository_of_its_own(repo: Repo) -> None:
    """It borrows the objects by a relative path; branches and configuration are its own."""
    show = "git rev-parse --absolute-git-dir; cat .git/objects/info/alternates"
    work = f"{show}; git config x.y z; git branch other"
    result = clone_session(repo, work)
    directory, borrowed = result.stdout.decode().split()
    assert Path(directory).parent.parent == repo.path / ".ralph" / "clones"
    assert borrowed == "../../../../../.git/objects"
    assert "refs/heads/other" not in refs(repo)
    assert "x.y" not in repo.git("config", "--list")


def test_other_branches_of_a_clone_are_kept(repo: Repo) -> None:
    """A commit on another branch, in the stash or only in a reflog gets a ref in the repository."""
    work = """
    git switch -qc side; echo side > side; git add .; git commit -qm side; git switch -q $RALPH_BRANCH
    echo stashed > file.txt; git stash -q
    echo amended > c; git add .; git commit -qm lost; git commit -q --amend -m kept
    """
    result = clone_session(repo, work)
    assert result.status == 0, result.stderr
    kept = [repo.git("log", "-1", "--format=%s", ref) for ref in refs(repo, "refs/ralph/snapshots")]
    assert "side" in kept
    assert "lost" in kept
    assert any("WIP on" in subject for subject in kept)


def test_a_killed_session_is_swept(repo: Repo) -> None:
    """After SIGKILL the next sweep saves what was in the clone, and leaves nothing else."""
    session = killed(repo, "echo a > a; git add a; git commit -qm a; echo b > b")
    clone = repo.path / ".ralph" / "clones" / session
    (clone / "later").write_text("later\n")
    assert command("sweep", cwd=repo.path).status == 0
    agent_id = session[-4:]
    assert repo.show(f"ralph/{agent_id}:a") == b"a\n"
    assert repo.show(f"ralph/{agent_id}-wip:b") == b"b\n"
    assert repo.show(f"ralph/{agent_id}-wip:later") == b"later\n"
    assert left_over(repo) == []


def test_a_user_sees_the_work_of_a_live_session(repo: Repo) -> None:
    """Each iteration writes a bundle, and the next command takes it in."""
    with Session(
        repo.path, "--delay", "1h", *CLONE, "--", "sh", "-c", "echo a > a; git add .; git commit -qm a"
    ) as session:
        session.wait_for("work.bundled")
        listed = command("review", "--json", cwd=repo.path)
        (row,) = json.loads(listed.stdout)["data"]
        assert (row["branch"], row["ahead"]) == (f"ralph/{session.directory.name[-4:]}", 1)
        session.send(signal.SIGTERM)
        assert session.finish().report["commits"] == 1
    assert left_over(repo) == []


def test_a_session_in_a_clone_goes_on(repo: Repo) -> None:
    """Its saved work is back in the new clone, at the same path, and comes out again."""
    first = clone_session(repo, "pwd; [ ! -f a ] || { git add .; git commit -qm a; }; echo a > a")
    agent_id = first.report["session"][-4:]
    again = command("resume", agent_id, cwd=repo.path)
    assert again.status == 0, again.stderr
    assert first.stdout.decode() == again.stdout.decode()
    assert repo.show(f"ralph/{agent_id}:a") == b"a\n"
    assert f"refs/heads/ralph/{agent_id}-wip" not in refs(repo)
    assert left_over(repo) == []


def test_without_a_clone_there_is_no_session(repo: Repo) -> None:
    """The agent does not run in the plain project root, whatever the reason is."""
    (repo.path / ".ralph").mkdir()
    (repo.path / ".ralph" / "clones").write_text("in the way")
    result = clone_session(repo, "touch ran")
    assert result.status == 125
    assert "isolation is required" in result.stderr
    assert not (repo.path / "ran").exists()


@pytest.mark.parametrize("shared", [True, False])
def test_a_large_file_of_git_lfs_that_is_nowhere_else_keeps_a_clone(repo: Repo, shared: bool) -> None:
    """A commit has only its name: without the file, its content would be lost."""
    name = ".git/lfs/objects/ab/cd/abcd"
    if shared:
        repo.write(name, "large")
    result = clone_session(repo, f"mkdir -p {Path(name).parent}; echo large > {name}")
    assert bool(result.report["kept"]) == (not shared)
    assert shared or "large files of git-lfs" in result.report["kept"]


def test_repositories_in_a_clone_keep_it(repo: Repo) -> None:
    """What a replica does not hold, a submodule or a worktree of the clone, is not removed."""
    work = "git worktree add -q ../beside; echo x > ../beside/x"
    result = clone_session(repo, work)
    session = result.report["session"]
    assert "worktrees of the clone" in result.report["kept"]
    assert (repo.path / ".ralph" / "clones" / session / ".git").is_dir()
    assert (repo.path / ".ralph" / "clones" / "beside" / "x").exists()


GONE = 'mkdir -p "$RALPH_PROJECT/.ralph/run/replicas/$RALPH_SESSION_ID.gone/left"'
DEEP = """cd "$RALPH_PROJECT/.ralph/run/replicas/$RALPH_SESSION_ID"
mkdir -p "left/$(printf 'a/%.0s' $(seq 1500))" """


@pytest.mark.parametrize("leave", [GONE, DEEP], ids=["gone", "deep"])
def test_what_is_left_in_the_way_of_a_removal_hinders_none(repo: Repo, leave: str) -> None:
    """A deletion of a replica that was killed, and directories deeper than Python can call itself."""
    result = clone_session(repo, f"echo a > a; {leave}")
    assert (result.report["kept"], result.report["error"], result.warnings) == (None, None, [])
    assert repo.git("show", f"{result.report['saved']}:a") == "a"
    command("sweep", cwd=repo.path)
    assert left_over(repo) == []


def test_an_unused_clone_leaves_nothing(repo: Repo) -> None:
    """With --drop-empty a session without work leaves no branch and no other ref."""
    result = clone_session(repo, "true", "--drop-empty")
    assert result.status == 0, result.stderr
    assert refs(repo) == ["refs/heads/main"]
    assert left_over(repo) == []


def test_a_session_without_a_change_leaves_its_branch(repo: Repo) -> None:
    """As in a worktree. The other ref of the session goes when the dropped branch does."""
    result = clone_session(repo, "true")
    agent_id, branch = result.report["id"], result.report["branch"]
    assert refs(repo, f"refs/heads/{branch}") == [f"refs/heads/ralph/{agent_id}"]
    assert (result.report["commits"], left_over(repo)) == (0, [])
    assert command("drop", agent_id, cwd=repo.path).status == 0
    for later in (60, 61):
        expire(find_project(repo.path, os.environ), 1.0, time.time() + later)
    assert refs(repo, "refs/ralph") == []


def test_what_a_clone_borrows_is_kept(repo: Repo) -> None:
    """``git gc`` does not delete the base of a live clone, even if the user has dropped it."""
    base = repo.commit("borrowed")
    with Session(repo.path, "--delay", "1h", *CLONE, "--", "sh", "-c", "echo a > a") as session:
        session.wait_for("work.bundled")
        repo.git("reset", "--quiet", "--hard", "HEAD~")
        repo.git("reflog", "expire", "--expire=now", "--all")
        repo.git("gc", "--quiet", "--prune=now")
        assert repo.git("cat-file", "-t", base) == "commit"
        session.send(signal.SIGTERM)
        assert session.finish().report["kept"] is None


def test_what_an_agent_pushed_to_a_repository_of_its_own_is_kept(repo: Repo, tmp_path: Path) -> None:
    """That repository may be gone, and with the clone the remote branch that named the commit."""
    backup, seen = tmp_path / "backup", tmp_path / "seen"
    work = (
        f"git init -q --bare {backup}; git remote add backup {backup}; git switch -qc feature;"
        f"echo x > x; git add x; git commit -qm x; git rev-parse HEAD > {seen};"
        f"git push -q backup feature; git switch -q -; git branch -qD feature; rm -r {backup}"
    )
    result = clone_session(repo, work)
    assert result.status == 0, result.stderr
    assert repo.git("for-each-ref", "--contains", seen.read_text().strip())


def test_what_an_agent_fetched_from_a_remote_gets_no_snapshot(repo: Repo, tmp_path: Path) -> None:
    """The remote of the project has it, and it is no work of the agent."""
    repo.git("clone", "-q", "--bare", repo.path, tmp_path / "origin")
    repo.git("remote", "add", "origin", tmp_path / "origin")
    new = repo.git("commit-tree", "-p", "main", "-m", "new", "main^{tree}")
    repo.git("push", "-q", "origin", f"{new}:refs/heads/new")
    repo.git("update-ref", "-d", "refs/remotes/origin/new")
    result = clone_session(repo, "git fetch -q origin")
    assert result.status == 0, result.stderr
    assert refs(repo, "refs/ralph/snapshots") == []


def test_commit_each_makes_snapshots_in_a_clone(repo: Repo) -> None:
    """With a warning: the agent's repository is its own, and the work comes out all the same."""
    repo.write(".ralph/config.toml", "commit_each = true\n")
    work = 'echo "$RALPH_ITERATION" > file-$RALPH_ITERATION; git status --porcelain'
    result = run(repo.path, "-n", "2", *CLONE, "--", "sh", "-ec", work, env=TRUST)
    assert (result.status, result.stdout) == (0, b"?? file-1\n?? file-1\n?? file-2\n"), result.stderr
    assert "no effect: commit_each; in a clone each iteration leaves a snapshot" in result.stderr
    agent_id = result.report["session"][-4:]
    assert repo.show(f"refs/ralph/snapshots/{agent_id}/1:file-1") == b"1\n"
    assert repo.show(f"ralph/{agent_id}-wip:file-2") == b"2\n"
    assert repo.git("rev-list", "--count", f"main..ralph/{agent_id}") == "0"
    assert left_over(repo) == []


@pytest.mark.parametrize("exists", [True, False])
def test_a_named_branch_comes_out_of_a_clone(repo: Repo, exists: bool) -> None:
    """The branch of the user gets the commits, and no other branch is made but that of the saved work."""
    if exists:
        repo.git("branch", "feature/x")
    result = clone_session(
        repo, "date +%N > a; git add a; git commit -qm a; date +%N > b", "--branch", "feature/x"
    )
    assert result.status == 0, result.stderr
    agent_id = result.report["session"][-4:]
    assert refs(repo, "refs/heads") == [
        "refs/heads/feature/x",
        "refs/heads/main",
        f"refs/heads/ralph/{agent_id}-wip",
    ]
    assert (result.report["branch"], result.report["commits"]) == ("feature/x", 1)
    again = command("resume", agent_id, cwd=repo.path)
    assert again.status == 0, again.stderr
    assert repo.git("rev-list", "--count", "main..feature/x") == "2"
    assert left_over(repo) == []


def test_a_named_branch_of_a_killed_session_is_swept(repo: Repo) -> None:
    """A host command takes its first iteration in, and the sweep what came later."""
    repo.git("branch", "feature")
    session = killed(repo, COMMIT, "--branch", "feature")
    assert command("review", cwd=repo.path).status == 0
    assert repo.show("feature:a") == b"a\n"
    (repo.path / ".ralph" / "clones" / session / "later").write_text("later\n")
    assert command("sweep", cwd=repo.path).status == 0
    assert repo.show(f"ralph/{session[-4:]}-wip:later") == b"later\n"
    assert f"refs/heads/ralph/{session[-4:]}" not in refs(repo)
    assert left_over(repo) == []


def test_a_named_branch_that_moved_meanwhile_keeps_both(repo: Repo) -> None:
    """The commit of the user stays on the branch, and that of the agent is a snapshot beside it."""
    repo.git("branch", "feature")
    git = f"git -C {repo.path}"
    move = f"{git} branch -f feature $({git} commit-tree -p main -m mine main^{{tree}})"
    result = clone_session(repo, f"{COMMIT}; {move}", "--branch", "feature")
    assert result.status == 0, result.stderr
    assert repo.git("log", "-1", "--format=%s", "feature") == "mine"
    (kept,) = refs(repo, "refs/ralph/snapshots")
    assert repo.show(f"{kept}:a") == b"a\n"


def test_a_named_branch_has_one_worktree_or_clone(repo: Repo) -> None:
    """One that is checked out is refused, and so is one that another clone works on."""
    busy = clone_session(repo, "touch ran", "--branch", "main")
    assert "branch main is checked out in" in busy.stderr
    with Session(repo.path, "--delay", "1h", *CLONE, "--branch", "mine", "--", "true") as session:
        session.wait_for("work.bundled")
        second = clone_session(repo, "touch ran", "--branch", "mine")
        session.send(signal.SIGTERM)
        session.finish()
    assert "branch mine is checked out in" in second.stderr
    assert {busy.status, second.status} == {125}
    assert left_over(repo) == []


@pytest.fixture
def origin(repo: Repo, tmp_path: Path) -> Repo:
    """Return the bare repository that is the origin of the project."""
    repo.git("clone", "-q", "--bare", repo.path, tmp_path / "origin.git")
    repo.git("remote", "add", "origin", tmp_path / "origin.git")
    return type(repo)(tmp_path / "origin.git")


def test_commits_in_a_clone_are_pushed(repo: Repo, origin: Repo) -> None:
    """Each commit, while the loop goes on, also one that replaces another; saved work is not pushed."""
    repo.write(".ralph/config.toml", 'push = "origin"\n')
    amend = "; echo b > b; git add b; git commit -q --amend -m b"
    work = f"case $RALPH_ITERATION in 1) {COMMIT};; 2) true{amend};; esac; echo x > uncommitted"
    result = run(repo.path, "-n", "2", *CLONE, "--", "sh", "-ec", work, env=TRUST)
    assert result.status == 0, result.stderr
    branch = result.report["branch"]
    assert refs(origin, "refs/heads") == ["refs/heads/main", f"refs/heads/{branch}"]
    assert origin.git("log", "--format=%s", f"main..{branch}") == "b"
    assert len([name for name in result.names if name == "branch.pushed"]) == 2


def test_a_session_in_a_clone_is_kept_on_a_remote(repo: Repo, origin: Repo) -> None:
    """In the middle of an iteration the remote gets its uncommitted work, and at the end everything."""
    repo.write(".ralph/config.toml", 'remote_beat = "200ms"\n')
    work = f"{COMMIT}; echo b > b; until [ -f go ]; do sleep 0.1; done"
    options = ("-n", "1", *CLONE, "--remote", "origin")
    with Session(repo.path, *options, "--", "sh", "-ec", work, env=TRUST) as session:

        def has_it() -> bool:
            found = refs(origin, "refs/ralph/snapshots")
            return bool(found) and "b" in origin.git("ls-tree", "--name-only", found[0]).split()

        eventually(has_it, "the uncommitted work on the remote")
        (repo.path / ".ralph" / "clones" / session.directory.name / "go").touch()
        report = session.finish().report
    assert origin.show(f"ralph/{report['id']}:a") == b"a\n"
    assert origin.show(f"ralph/{report['id']}-wip:b") == b"b\n"
    assert left_over(repo) == []


@pytest.mark.parametrize("kill", [False, True])
def test_a_clone_may_hold_a_part_of_the_repository(repo: Repo, kill: bool) -> None:
    """Files that were not checked out are not deleted, and no link is saved as work."""
    for name in ("src/a", "src/deep/b", "other/c"):
        repo.write(name, f"{name}\n")
    repo.write(".gitignore", "cache/\n.ralph/\n")
    repo.commit("more")
    repo.write("cache/file", "shared\n")
    look = "ls; cat cache/file; git status --porcelain"
    work = f"{look}; echo new > src/new; git add -A; git commit -qm new; echo x >> src/a; echo y > cache/y"
    options = ("--sparse", "src", "--link", "cache")
    if kill:
        session = killed(repo, work, *options)
        assert command("sweep", cwd=repo.path).status == 0
    else:
        result = clone_session(repo, work, *options)
        assert result.stdout.decode().split() == ["cache", "file.txt", "src", "shared"], result.stderr
        session = result.report["session"]
    branch = f"ralph/{session[-4:]}"
    assert repo.git("diff", "--name-status", "main", branch) == "A\tsrc/new"
    assert repo.git("diff", "--name-status", branch, f"{branch}-wip") == "M\tsrc/a"
    assert (repo.path / "cache" / "y").is_file()
    assert left_over(repo) == []


def test_a_clone_may_hold_the_top_level_alone(repo: Repo) -> None:
    """``--base fresh`` checks out no directory; a later session in the same state goes on from there."""
    repo.write("src/a", "a\n")
    repo.commit("more")
    first = clone_session(repo, "ls; date +%N > new", "--base", "fresh")
    assert first.stdout.decode().split() == ["file.txt"], first.stderr
    again = command("resume", first.report["id"], cwd=repo.path)
    assert again.stdout.decode().split() == ["file.txt", "new"], again.stderr
    assert repo.git("diff", "--name-status", "main", f"ralph/{first.report['id']}-wip") == "A\tnew"


def test_files_that_an_agent_leaves_out_of_its_clone_are_not_deleted(repo: Repo) -> None:
    """It has made its clone sparse itself, in a configuration that a save does not read."""
    repo.write("src/a", "a\n")
    repo.commit("more")
    result = clone_session(repo, "git sparse-checkout set other 2>/dev/null; echo x > new; ls")
    assert result.stdout.decode().split() == ["file.txt", "new"], result.stderr
    assert repo.git("diff", "--name-status", "main", f"ralph/{result.report['id']}-wip") == "A\tnew"
