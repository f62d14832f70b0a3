"""Two containers on one project: neither sees the processes of the other."""

import shutil

import pytest

from tests.container.box import Box, StartBox
from tests.support.repo import Repo
from tests.support.sessions import command

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
]

# Leaves a process with no environment and no inherited descriptor, which writes once more on a signal.
LEAVING = """
python3 -c 'import subprocess; subprocess.Popen(
    ["/bin/sh", "-c",
     "echo early >late.txt; until [ -e ../../run/go ]; do sleep 0.05; done; echo late >>late.txt; sleep 600"],
    close_fds=True, env={})'
echo $$ >agent.pid
exec sleep 600
"""


def wait_for_sweep(box: Box) -> None:
    """Wait until PID 1 has no children any more."""

    def has_none() -> bool:
        listed = box.run("cat", "/proc/1/task/1/children")
        assert listed.status == 0, listed.stderr
        return not listed.stdout.strip()

    box.eventually(has_none, "its sweep to end")


def die(box: Box, repo: Repo, *others: Box) -> None:
    """Start a session in a container, and kill it and its agent, but not what that has left."""
    boxes = (box, *others)
    box.run("ralph-wrap", "run", "--max-iterations=1", "--drop-empty", "--", "true")  # makes .ralph/run
    for one in boxes:
        one.container.kill("HUP")
    containers = repo.path / ".ralph" / "run" / "containers"
    box.eventually(lambda: len([*containers.glob("*.lock")]) >= len(boxes), "each PID 1 to take its lock")
    for one in boxes:  # the sweep that HUP asks for began before that, and must not find what is killed now
        wait_for_sweep(one)
    box.start("ralph-wrap", "run", "--", "/bin/sh", "-c", LEAVING)
    worktrees = repo.path / ".ralph" / "worktrees"
    box.eventually(lambda: [*worktrees.glob("*/agent.pid")] and [*worktrees.glob("*/late.txt")], "the agent")
    [pid_file] = worktrees.glob("*/agent.pid")
    box.eventually(pid_file.read_text, "its pid")
    killed = box.run("sh", "-c", f"kill -KILL {box.record()['pid']} {pid_file.read_text()}")
    assert killed.status == 0, killed.stderr


def test_a_sweep_leaves_what_another_container_may_work_in(start_box: StartBox, repo: Repo) -> None:
    """As long as that container lives, no sweep takes the worktree away from under its processes."""
    box, other = start_box(repo.path), start_box(repo.path)
    die(box, repo, other)

    def is_left() -> bool:  # once no other sweep, such as that of PID 1, holds the session
        swept = other.run("ralph-wrap", "sweep")
        return swept.status == 5 and "its container is still running" in swept.stderr

    box.eventually(is_left, "it to be named")
    [worktree] = repo.path.glob(".ralph/worktrees/*")
    (repo.path / ".ralph" / "run" / "go").touch()
    box.eventually(lambda: (worktree / "late.txt").read_text() == "early\nlate\n", "it to go on writing")

    box.container.kill()
    box.container.wait()
    swept = other.run("ralph-wrap", "sweep")
    assert swept.status == 0, swept.stderr
    assert repo.git("show", f"ralph/{worktree.name[-4:]}-wip:late.txt") == "early\nlate"
    assert not worktree.exists()
    locks = [*repo.path.glob(".ralph/run/containers/*")]
    assert len(locks) == 1, "only that of the container that lives is left"


def test_without_that_lock_the_worktree_would_go(start_box: StartBox, repo: Repo) -> None:
    """Negative control: the other one cannot tell, and takes it away from under a process that waits."""
    box, other = start_box(repo.path), start_box(repo.path)
    die(box, repo)
    shutil.rmtree(repo.path / ".ralph" / "run" / "containers")
    assert other.run("ralph-wrap", "sweep").status == 0
    assert [*repo.path.glob(".ralph/worktrees/*")] == []


def test_a_sweep_in_the_same_container_ends_what_it_sees(start_box: StartBox, repo: Repo) -> None:
    """There the lock of PID 1 is no obstacle: a process that works in the worktree is seen, and named."""
    box = start_box(repo.path)
    die(box, repo)

    def is_named() -> bool:  # once no other sweep, such as that of PID 1, holds the session
        swept = box.run("ralph-wrap", "sweep")
        return swept.status == 5 and "processes work in it: sh (" in swept.stderr

    box.eventually(is_named, "the process to be named")


HEARING = """
cat > ../../run/.prompt; mv ../../run/.prompt ../../run/prompt-$RALPH_ITERATION
until [ -e ../../run/go ]; do sleep 0.05; done
"""


def test_a_session_is_told_from_anywhere(start_box: StartBox, repo: Repo) -> None:
    """By another container, and by the host with --now: both are in the next prompt, in this order."""
    box, other = start_box(repo.path), start_box(repo.path)
    options = ("-p", "Do it.", "-n", "2", "--max-stalls", "0")
    running = box.start("ralph-wrap", "run", *options, "--", "/bin/sh", "-c", HEARING)
    directory = repo.path / ".ralph" / "run"
    box.eventually((directory / "prompt-1").exists, "the first prompt")
    agent_id = box.record()["id"]
    told = other.run("ralph-wrap", "tell", agent_id, "From another container.")
    assert told.status == 0, told.stderr
    here = command("tell", agent_id, "--now", "From the host.", cwd=repo.path)
    assert here.status == 0, here.stderr
    box.eventually((directory / "prompt-2").exists, "the second prompt")
    assert (directory / "prompt-2").read_text() == "From another container.\n\nFrom the host.\n\nDo it."
    (directory / "go").touch()
    assert running.wait() == 0
    assert box.reports()[-1]["unread"] == []
