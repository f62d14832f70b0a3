"""What each iteration hands over: a snapshot of what is uncommitted, or a commit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import make_repo
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("trusted")

SH = ("--", "sh", "-c")
ON_EACH = 'case "$RALPH_ITERATION" in {} esac'

MERGE = """git checkout -qb side; echo s > file.txt; git commit -qam s
git checkout -q -; echo o > file.txt; git commit -qam o; git merge side || :"""


def on_each(*scripts: str) -> tuple[str, ...]:
    """Return the command of an agent with a script for each iteration."""
    return (*SH, ON_EACH.format(" ".join(f"{n}) {script};;" for n, script in enumerate(scripts, 1))))


def kept(result: Result) -> list[tuple[int, str | None]]:
    """Return what was logged of each iteration: its number, and the last part of its snapshot's name."""
    events = [event for event in result.events if event["event"] == "iteration.kept"]
    return [(event["iteration"], event["snapshot"] and event["snapshot"].split("/")[-1]) for event in events]


def snapshots(repo: Repo) -> dict[str, str]:
    """Return the snapshots, by the last part of their name, with the files in them."""
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/snapshots/").split()
    return {
        ref.split("/")[-1]: repo.git("ls-tree", "-r", "--name-only", ref).replace("\n", " ") for ref in refs
    }


def configure(repo: Repo, line: str) -> None:
    """Write the configuration."""
    repo.write(".ralph/config.toml", f"{line}\n")


def test_each_iteration_leaves_a_snapshot_of_uncommitted_work(repo: Repo) -> None:
    """On top of the HEAD at its end, and none where everything is committed; the last is saved anyway."""
    commit = "git add -A; git commit -qm two"
    result = run(
        repo.path, "-n", "4", *on_each("echo 1 > one", f"echo 2 > two; {commit}", "echo 3 > three", ":")
    )
    branch = result.report["branch"]
    assert kept(result) == [(1, "1"), (2, None), (3, "3")]
    assert snapshots(repo) == {"1": "file.txt one", "3": "file.txt one three two"}
    prefix = f"refs/ralph/snapshots/{result.report['id']}"
    assert repo.git("rev-parse", f"{prefix}/1^", f"{prefix}/3^").split() == [
        repo.git("rev-parse", "main"),
        repo.git("rev-parse", branch),
    ]
    assert repo.git("log", "-1", "--format=%s", f"{prefix}/3") == (
        f"ralph: after iteration 3 of session {result.report['session']}"
    )
    assert repo.git("ls-tree", "--name-only", f"{branch}-wip").split() == ["file.txt", "one", "three", "two"]


@pytest.mark.parametrize("option", [(), ("--max-stalls", "0")])
def test_it_holds_hidden_and_staged_files(repo: Repo, option: tuple[str, ...]) -> None:
    """As the saved work at the end does, and the agent's own index stays as it was."""
    script = (
        "echo hidden > file.txt; git update-index --assume-unchanged file.txt; echo new > new;"
        " echo staged > part; git add part; echo disk > part"
    )
    result = run(repo.path, "-n", "2", *option, *on_each(script, "git status --porcelain"))
    ref = f"refs/ralph/snapshots/{result.report['id']}/1"
    assert [repo.git("show", f"{ref}:{name}") for name in ("file.txt", "new", "part")] == [
        "hidden",
        "new",
        "disk",
    ]
    assert repo.git("show", f"{ref}^2:part") == "staged"
    assert result.stdout == b"AM part\n?? new\n"


def test_sigkill_loses_no_more_than_the_current_iteration_even_without_the_disk_copy(repo: Repo) -> None:
    """What the iteration before has left is in the repository, whatever has become of the worktree."""
    scripts = ("echo work > kept", "echo lost > lost; sleep 60")
    with Session(repo.path, "-n", "2", *on_each(*scripts)) as session:
        session.wait_for("agent.started", 2)
        session.send(signal.SIGKILL)
        assert session.finish().status == -signal.SIGKILL
    (worktree,) = (repo.path / ".ralph/worktrees").iterdir()
    shutil.rmtree(worktree)
    command("sweep", cwd=repo.path)
    assert snapshots(repo) == {"1": "file.txt kept"}


def test_work_in_the_place_of_a_link_is_a_change(repo: Repo) -> None:
    """Git must not see the links to the project; the agent may replace one by a directory of its own."""
    repo.write("shared/theirs", "theirs\n")
    scripts = on_each("rm shared; mkdir shared; echo work > shared/file", ":")
    result = run(repo.path, "-n", "2", "--max-stalls", "9", "--link", "shared", *scripts)
    ended = [event["changed"] for event in result.events if event["event"] == "iteration.ended"]
    assert (ended, snapshots(repo)) == ([True, None], {"1": "file.txt shared/file"})


def test_a_disk_that_takes_no_snapshot_does_not_end_the_loop(repo: Repo) -> None:
    """A warning says so each time."""
    script = 'echo > new; cd "$RALPH_PROJECT/.git/refs"; mkdir -p ralph; touch ralph/snapshots'
    result = run(repo.path, "-n", "2", *SH, script)
    assert result.ending == ("max-iterations", 2, 0)
    assert "no snapshot of the uncommitted work of iteration 1" in result.stderr


@pytest.mark.parametrize(("first", "stays"), [("echo 1 > one", True), (":", False)])
def test_a_branch_with_snapshots_is_not_empty(repo: Repo, *, first: str, stays: bool) -> None:
    """They go with it, by `drop`; with nothing at all, --drop-empty deletes it."""
    result = run(repo.path, "-n", "2", "--drop-empty", *on_each(first, "rm -f one"))
    assert result.report["saved"] is None
    assert (f"ralph/{result.report['id']}" in repo.branches(), bool(snapshots(repo))) == (stays, stays)


@pytest.mark.parametrize("name", ["HEAD", "index"])
def test_a_pipe_in_the_place_of_a_file_of_git_hangs_no_session(repo: Repo, name: str) -> None:
    """The session does not wait for its other end; the worktree stays."""
    script = f'cd "$(git rev-parse --git-dir)"; rm {name}; mkfifo {name}'
    result = run(repo.path, "-n", "2", *on_each(script, ":"))
    assert result.ending[0] == "max-iterations"
    assert "HEAD or index is no file any more" in result.stderr
    assert result.report["kept"]


def test_a_plain_project_is_left_alone(repo: Repo) -> None:
    """Uncommitted work there may be the user's."""
    configure(repo, "commit_each = true")
    result = run(repo.path, "--isolation", "off", "-n", "2", *SH, 'echo "$RALPH_ITERATION" > new')
    assert kept(result) == []
    assert snapshots(repo) == {}
    assert repo.git("log", "--format=%s") == "first"


def test_commit_each_commits_what_an_iteration_leaves(repo: Repo) -> None:
    """The last one's, too; an iteration that has committed everything gets no commit more."""
    configure(repo, "commit_each = true")
    scripts = (
        "echo 1 > one; echo x > ignored.log",
        "echo 2 > two; git add two; git commit -qm own",
        "rm one",
    )
    repo.write(".gitignore", "*.log\n.ralph/\n")
    repo.commit("ignored")
    result = run(repo.path, "-n", "3", *on_each(*scripts))
    branch = result.report["branch"]
    assert repo.git("log", "--format=%s", f"main..{branch}").split("\n") == [
        "Iteration 3",
        "own",
        "Iteration 1",
    ]
    assert repo.git("ls-tree", "--name-only", branch).split() == [".gitignore", "file.txt", "two"]
    assert kept(result) == [(1, None), (2, None), (3, None)]
    assert snapshots(repo) == {}
    assert result.report["saved"] is None
    assert result.report["commits"] == 3


def test_commit_each_is_no_progress(repo: Repo) -> None:
    """An agent that does nothing stalls; the commit of its first work does not count as more."""
    configure(repo, "commit_each = true")
    result = run(repo.path, "--max-stalls", "2", *on_each("echo 1 > one"))
    assert result.ending == ("max-stalls", 3, 0)


@pytest.mark.parametrize(
    "script",
    ["git checkout -q --detach", "git checkout -q theirs", MERGE],
)
def test_commit_each_stays_out_of_what_git_is_in_the_middle_of(repo: Repo, script: str) -> None:
    """Without a branch, on the user's branch, or with conflicts, there is a snapshot instead."""
    repo.git("branch", "theirs")
    configure(repo, "commit_each = true")
    result = run(
        repo.path,
        "-n",
        "2",
        *on_each(f"{script}; echo 1 > one", "git status --porcelain; git log -1 --format=%s"),
    )
    assert b"?? one\n" in result.stdout
    assert b"Iteration" not in result.stdout
    assert kept(result)[0] == (1, "1")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ralph/snapshots/$RALPH_AGENT_ID/1", ("-n", "2")),
        ("heads/$RALPH_BRANCH-wip", ("-n", "1")),
        ("heads/$RALPH_BRANCH", ("-n", "1")),
    ],
    ids=["snapshot", "saved", "branch"],
)
def test_a_ref_of_ours_that_names_another_branch_moves_nothing(
    repo: Repo, name: str, options: tuple[str, ...]
) -> None:
    """An agent can make it a symbolic one."""
    configure(repo, "commit_each = false" if "heads" not in name else "commit_each = true")
    before = repo.head
    detach = "git checkout -q --detach; " if "wip" in name else ""
    script = f'{detach}git symbolic-ref "refs/{name}" refs/heads/main; echo "$RALPH_ITERATION" > new'
    result = run(repo.path, *options, *SH, script)
    assert repo.git("rev-parse", "main") == before
    assert repo.git("show", f"{result.report['saved']}:new") == options[1]


def test_an_unused_branch_that_names_another_goes_alone(repo: Repo) -> None:
    """An agent can make it a symbolic one."""
    repo.git("checkout", "-qb", "other")
    script = 'git checkout -q --detach; git symbolic-ref "refs/heads/$RALPH_BRANCH" refs/heads/main'
    result = run(repo.path, "--drop-empty", "-n", "1", *SH, script)
    assert "branch.deleted" in result.names
    assert repo.branches() == ["main", "other"]


def test_files_that_are_hidden_alone_are_kept(repo: Repo) -> None:
    """Git takes the worktree for unchanged."""
    script = "git update-index --skip-worktree file.txt; echo hidden > file.txt"
    result = run(repo.path, "-n", "2", *SH, script)
    ref = f"refs/ralph/snapshots/{result.report['id']}/1"
    assert repo.git("show", f"{ref}:file.txt") == "hidden"


@pytest.mark.parametrize("line", ["", "commit_each = true"])
def test_a_repository_within_is_named_and_no_failure(repo: Repo, line: str) -> None:
    """Neither a snapshot nor a commit can hold it."""
    configure(repo, line)
    script = "mkdir inner; cd inner; git init -q; git commit -q --allow-empty -m inner; echo x > new"
    result = run(repo.path, "-n", "2", *on_each(script, "true"))
    printed = [event["problems"] for event in result.events if event["event"] == "snapshot.incomplete"]
    assert printed[0] == ["nested repository inner"]
    assert "iteration.not_committed" not in result.names


@pytest.mark.parametrize("line", ["", "commit_each = true"])
def test_a_dirty_submodule_is_named_and_no_progress(repo: Repo, tmp_path: Path, line: str) -> None:
    """Uncommitted work in it is saved at the end alone."""
    inner = make_repo(tmp_path / "inner")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    repo.commit("with a submodule")
    configure(repo, f'submodules = "init"\n{line}')
    result = run(repo.path, "--max-stalls", "2", *on_each("echo x > sub/new; echo y > own", "true"))
    printed = [event["problems"] for event in result.events if event["event"] == "snapshot.incomplete"]
    assert printed[0] == ["submodule sub: the uncommitted work in it"]
    assert result.ending == ("max-stalls", 3, 0)


def test_what_a_symlink_leads_to_is_not_kept(repo: Repo) -> None:
    """It is not the worktree: it may be the user's own checkout."""
    configure(repo, "commit_each = true")
    repo.write("private", "x")
    script = 'rm -r "$RALPH_WORKSPACE"; ln -s "$RALPH_PROJECT" "$RALPH_WORKSPACE"'
    result = run(repo.path, "-n", "2", *on_each(script, "true"))
    assert repo.git("log", "--all", "--format=%s") == "first"
    assert "a symlink is in the worktree's place" in result.stderr


def test_an_option_without_effect_in_the_project_is_named(repo: Repo) -> None:
    """Nothing is left out in silence."""
    repo.git("remote", "add", "origin", "nowhere")
    configure(repo, 'commit_each = true\npush = "origin"')
    result = run(repo.path, "--isolation", "off", "-n", "1", *SH, "true")
    assert [printed["message"] for printed in result.warnings] == [
        "no effect: push, commit_each; there is no worktree of our own"
    ]


def test_a_wrong_value_is_named(repo: Repo) -> None:
    """As that of any other key."""
    configure(repo, 'commit_each = "often"')
    result = command("run", *SH, "true", cwd=repo.path)
    assert result.status == 2
    assert "commit_each" in result.stderr


def test_nothing_waits_for_a_gc(repo: Repo) -> None:
    """Neither a snapshot nor the last save: no gc can delete what they store."""
    (repo.path / ".git/gc.pid").write_text(f"{os.getpid()} {socket.gethostname()}")
    result = run(repo.path, "-n", "1", *SH, "echo new > new.txt")
    assert result.status == 0
    assert result.report["kept"] is None
    assert repo.git("show", f"{result.report['saved']}:new.txt") == "new"


def test_a_snapshot_whose_commit_is_gone_is_named_when_its_ref_goes(repo: Repo) -> None:
    """The log has the ref and the object id, so that the commit can still be searched for."""
    delete = (
        'o=$(git for-each-ref --format="%(objectname)" refs/ralph/snapshots/); echo "$o" > lost;'
        ' rm -f "$(git rev-parse --git-common-dir)/objects/$(echo "$o" | sed "s,^..,&/,")"'
    )
    result = run(repo.path, "-n", "2", *on_each("echo 1 > one", delete))
    lost = repo.git("show", f"{result.report['branch']}-wip:lost")
    events = [event for event in result.events if event["event"] == "snapshot.lost"]
    ref = f"refs/ralph/snapshots/{result.report['id']}/1"
    assert [(event["ref"], event["commit"]) for event in events] == [(ref, lost)]
    assert snapshots(repo) == {}
