"""Sessions by `docker exec` in real containers, and what the host sees of them."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.container.box import PROJECT, Box, Ended, StartBox
from tests.support.repo import Repo, make_repo
from tests.support.trees import owners

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
]

# Commits one file, leaves another uncommitted, and works on until SIGTERM.
WORKING = """
echo one >one.txt && git add one.txt && git commit --quiet --message=one
echo draft >draft.new && mv draft.new draft.txt
exec sleep 600
"""

# Commits under its own name once two agents are there.
TOGETHER = """
touch /tmp/ready-$RALPH_AGENT_ID
until set -- /tmp/ready-*; [ $# -eq 2 ]; do sleep 0.01; done
echo $RALPH_AGENT_ID >same.txt && git add same.txt && git commit --quiet --message=$RALPH_AGENT_ID
echo draft of $RALPH_AGENT_ID >draft.txt
"""

# Prints its user and where it may write, and commits without an identity of its own.
WHO = """
echo $(id -u):$(id -g)
touch "$HOME/mine" && stat --format=%u "$HOME/mine"
echo one >one.txt && git add one.txt && git commit --quiet --message=one
echo draft >draft.txt
"""

# The owner of a project that is not root's: the user of these tests, or a user without a passwd entry.
OWNER = os.getuid() or 1000
GROUP = os.getgid() or 1000


def session(script: str) -> list[str]:
    """Return the command of a session of one iteration whose agent is a shell script."""
    return ["ralph-wrap", "run", "--max-iterations=1", "--", "/bin/sh", "-c", script]


def draft(project: Path) -> Path | None:
    """Return the uncommitted file of the WORKING agent of the one live session, once it is there."""
    return next(project.glob(".ralph/worktrees/*/draft.txt"), None)


def worktrees(repo: Repo) -> list[str]:
    """Return what there is of worktrees: the directories, and what git has registered."""
    directories = [path.name for path in repo.path.glob(".ralph/worktrees/*")]
    return directories + [f"registered: {Path(path).name}" for path in repo.worktrees()]


@dataclass(frozen=True, slots=True)
class Left:
    """What a session of the agent ``WORKING`` or ``WHO`` left behind."""

    ended_by: str
    exit_status: int
    branches: list[str]
    committed: str
    saved: str
    worktrees: list[str] = field(default_factory=list)


def left(box: Box, repo: Repo) -> Left:
    """Return what the one session that has ended in the project left."""
    (report,) = box.reports()
    agent = report["id"]
    return Left(
        ended_by=report["ended_by"],
        exit_status=report["exit_status"],
        branches=[name.replace(agent, "ID") for name in repo.branches()],
        committed=repo.git("diff", "--name-only", "main", f"ralph/{agent}"),
        saved=repo.git("diff", "--name-only", f"ralph/{agent}", f"ralph/{agent}-wip"),
        worktrees=worktrees(repo),
    )


def files(project: Path) -> list[Path]:
    """Return everything in the project but ralph-wrap's records and the ignore rule, which comes first."""
    ours = {Path(".gitignore"), Path(".ralph"), Path(".ralph/run"), Path(".ralph/worktrees")}
    found = [path.relative_to(project) for path in project.rglob("*")]
    return sorted(path for path in found if path not in ours and Path(".ralph/run") not in path.parents)


def assert_fell_back(ended: Ended, reason: str) -> None:
    """Check that the agent said the project's path, and that there was one warning, with reason and hint."""
    assert (ended.status, ended.stdout) == (0, f"{PROJECT}\n"), ended.stderr
    (warning,) = [line for line in ended.narration() if line["level"] == "warning"]
    assert warning["event"] == "isolation.fell_back"
    assert reason in warning["message"]
    assert warning["hint"]


def no_repository(path: Path) -> None:
    """Make a directory that git knows nothing of."""
    path.mkdir()


def no_commit(path: Path) -> None:
    """Make a repository that has no commit yet."""
    make_repo(path, empty=True)


def branch_named_ralph(path: Path) -> None:
    """Make a repository in which no branch `ralph/…` can exist."""
    make_repo(path).git("branch", "ralph")


def give(repo: Repo) -> None:
    """Make OWNER the owner of everything in the repository; git on the host may still look into it."""
    subprocess.run(["chown", "-R", f"{OWNER}:{GROUP}", repo.path], check=True)
    repo.git("config", "--global", "safe.directory", "*")


def test_two_sessions_at_once(start_box: StartBox, repo: Repo) -> None:
    """Two sessions by `docker exec` in one container each keep their own commit and their own draft."""
    box = start_box(repo.path)
    running = [box.start(*session(TOGETHER)) for _ in range(2)]
    assert [one.wait() for one in running] == [0, 0]
    ids = sorted(report["id"] for report in box.reports())
    assert repo.branches() == [
        "main",
        *(f"ralph/{agent}{suffix}" for agent in ids for suffix in ("", "-wip")),
    ]
    for agent in ids:
        assert repo.git("log", "--format=%s", f"main..ralph/{agent}") == agent
        assert repo.git("show", f"ralph/{agent}:same.txt") == agent
        assert repo.git("show", f"ralph/{agent}-wip:draft.txt") == f"draft of {agent}"
    assert worktrees(repo) == []


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_signal(start_box: StartBox, repo: Repo, name: str) -> None:
    """A session that gets a signal saves its work, removes its worktree and ends with 128+n."""
    box = start_box(repo.path)
    running = box.start(*session(WORKING))
    box.eventually(lambda: draft(repo.path), "the agent's draft")
    box.run("sh", "-c", f"kill -s {name} {box.record()['pid']}")
    status = 128 + signal.Signals[f"SIG{name}"]
    assert running.wait() == status
    assert left(box, repo) == Left(
        ended_by="signal",
        exit_status=status,
        branches=["main", "ralph/ID", "ralph/ID-wip"],
        committed="one.txt",
        saved="draft.txt",
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(no_repository, "not in a git repository", id="not a repository"),
        pytest.param(no_commit, "no commit", id="no commit yet"),
        pytest.param(branch_named_ralph, "'refs/heads/ralph' exists", id="a branch named ralph"),
    ],
)
def test_fallback(start_box: StartBox, tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    """Where no worktree is to be had the agent runs in the project itself, after one warning with a hint."""
    project = tmp_path / "project"
    make(project)
    before = files(project)
    ended = start_box(project).run(*session("pwd -P"))
    assert_fell_back(ended, reason)
    assert files(project) == before


def test_a_read_only_mount_is_an_error(start_box: StartBox, repo: Repo) -> None:
    """A session has no place for its record; the message says what to mount."""
    ended = start_box(repo.path, mode="ro").run(*session("pwd -P"))
    assert (ended.status, "mount the project writable" in ended.stderr) == (125, True), ended.stderr


def test_fallback_without_git(start_box: StartBox, repo: Repo) -> None:
    """Where git is not on PATH the agent runs in the project itself, after one warning with a hint."""
    before = files(repo.path)
    ended = start_box(repo.path).run(*session("pwd -P"), env={"PATH": "/usr/local/bin"})
    assert_fell_back(ended, "git is not installed")
    assert files(repo.path) == before


def test_no_start_compiles_the_program(start_box: StartBox, repo: Repo) -> None:
    """A user who cannot write to the installation would compile all of it again at each start."""
    program = (
        "import importlib.util as util, pathlib, ralph_wrap\n"
        "modules = [*pathlib.Path(ralph_wrap.__file__).parent.rglob('*.py')]\n"
        "compiled = [path for path in modules if pathlib.Path(util.cache_from_source(path)).exists()]\n"
        "print(len(modules) > 100, [*map(str, {*modules} - {*compiled})])"
    )
    ended = start_box(repo.path).run("/opt/ralph-wrap/bin/python", "-I", "-c", program)
    assert ended.stdout == "True []\n", ended.stderr


@pytest.mark.parametrize("user", ["0:0", f"{OWNER}:{GROUP}"], ids=["by root", "by the owner"])
def test_project_of_a_user(start_box: StartBox, repo: Repo, user: str) -> None:
    """In a project of a user without passwd entry, the agent runs as that user and owns every file."""
    give(repo)
    box = start_box(repo.path)
    ended = box.run(*session(WHO), user=user)
    assert (ended.status, ended.stdout) == (0, f"{OWNER}:{GROUP}\n{OWNER}\n"), ended.stderr
    assert left(box, repo) == Left(
        ended_by="max-iterations",
        exit_status=0,
        branches=["main", "ralph/ID", "ralph/ID-wip"],
        committed="one.txt",
        saved="draft.txt",
    )
    assert owners(repo.path) == {(OWNER, GROUP)}


def test_user_of_the_container(start_box: StartBox, repo: Repo) -> None:
    """A container started with `--user` and no passwd entry gives the agent a HOME and an identity too."""
    give(repo)
    box = start_box(repo.path, user=f"{OWNER}:{GROUP}")
    ended = box.run(*session(WHO))
    assert (ended.status, ended.stdout) == (0, f"{OWNER}:{GROUP}\n{OWNER}\n"), ended.stderr
    assert owners(repo.path) == {(OWNER, GROUP)}


def test_home_of_a_user_with_a_passwd_entry(start_box: StartBox, repo: Repo) -> None:
    """A session by root in the project of a user that the image knows has that user's HOME."""
    give(repo)
    box = start_box(repo.path)
    box.run("useradd", "--create-home", f"--uid={OWNER}", "somebody")
    assert box.run(*session('echo "$HOME"')).stdout == "/home/somebody\n"


def test_host_sees_a_live_session(start_box: StartBox, repo: Repo) -> None:
    """The host's git reads branch and worktree of a live session, though the container has another path."""
    box = start_box(repo.path)
    box.start(*session(WORKING))
    workspace = box.eventually(lambda: draft(repo.path), "the agent's draft").parent
    record: dict[str, Any] = box.record()
    assert record["workspace"] == f"{PROJECT}/.ralph/worktrees/{workspace.name}"
    assert repo.branches() == ["main", record["branch"]]
    assert repo.git("log", "--format=%s", "main..HEAD", cwd=workspace) == "one"
    assert repo.git("status", "--porcelain", cwd=workspace) == "?? draft.txt"


def test_host_prune_spares_a_live_session(start_box: StartBox, repo: Repo) -> None:
    """`git worktree prune` on the host, which lacks the container's paths, leaves a live session alone."""
    box = start_box(repo.path)
    box.start(*session(WORKING))
    workspace = box.eventually(lambda: draft(repo.path), "the agent's draft").parent
    repo.git("worktree", "prune", "--expire=now")
    assert repo.git("status", "--porcelain", cwd=workspace) == "?? draft.txt"


def test_host_prune_takes_an_unlocked_worktree(start_box: StartBox, repo: Repo) -> None:
    """Only its lock keeps `git worktree prune` on the host from a live session."""
    box = start_box(repo.path)
    box.start(*session(WORKING))
    workspace = box.eventually(lambda: draft(repo.path), "the agent's draft").parent
    repo.git("worktree", "unlock", workspace.name)
    repo.git("worktree", "prune", "--expire=now")
    assert worktrees(repo) == [workspace.name]
