"""The life of a container whose PID 1 is `ralph-wrap init`, and of the sessions in it."""

import fcntl
import re
import subprocess
from pathlib import Path

import pytest

from tests.container.box import Box, StartBox
from tests.support.repo import Repo
from tests.support.wait import CAP, eventually, never

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(180, func_only=True),  # the first test of a worker may wait for the image to be built
]

# Commits one file, leaves another uncommitted, and works on until it is told to stop.
WORKING = """
echo one >one.txt && git add one.txt && git commit --quiet --message=one
echo draft >draft.new && mv draft.new draft.txt
exec sleep 600
"""
SESSION = ("ralph-wrap", "run", "--max-iterations=1", "--", "/bin/sh", "-c", WORKING)

EIGHT = 8


def work(box: Box, count: int) -> None:
    """Start sessions by `docker exec`, and wait until the agent of each has left something uncommitted."""
    for _ in range(count):
        box.start(*SESSION)
    wait_for_drafts(box, count)


def wait_for_drafts(box: Box, count: int) -> None:
    """Wait until the agent of each session has left something uncommitted."""
    drafts = ".ralph/worktrees/*/draft.txt"
    box.eventually(lambda: len([*box.project.glob(drafts)]) == count, f"{count} drafts")


def records(repo: Repo) -> list[Path]:
    """Return the records of sessions that have not finished."""
    return sorted(repo.path.glob(".ralph/run/agents/*.json"))


def is_locked(record: Path) -> bool:
    """Tell whether the owner of a record lives."""
    with record.with_suffix(".lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def assert_saved(repo: Repo, box: Box, count: int, ended_by: str = "signal") -> None:
    """Check that all work of WORKING agents is in branches, and that nothing else is left of them."""
    ended = box.reports()
    assert [report["ended_by"] for report in ended] == [ended_by] * count, box.log()
    ids = sorted(report["id"] for report in ended)
    branches = [f"ralph/{agent}{suffix}" for agent in ids for suffix in ("", "-wip")]
    assert repo.branches() == ["main", *branches]
    for agent in ids:
        assert repo.git("diff", "--name-only", "main", f"ralph/{agent}") == "one.txt"
        assert repo.git("show", f"ralph/{agent}-wip:draft.txt") == "draft"
    assert [*repo.path.glob(".ralph/worktrees/*"), *repo.worktrees(), *records(repo)] == []


@pytest.mark.parametrize("init", [False, True], ids=["", "--init"])
def test_stop_saves_every_session(start_box: StartBox, repo: Repo, init: bool) -> None:
    """`docker stop` reaches eight sessions of `docker exec`, all of which save their work and leave."""
    box = start_box(repo.path, init=init)
    work(box, EIGHT)
    assert box.end() == 0
    assert_saved(repo, box, EIGHT)
    told = re.findall(r"^ralph-wrap init: (told|finished): \d+ \S+ \(session ", box.log(), re.MULTILINE)
    assert sorted(told) == ["finished"] * EIGHT + ["told"] * EIGHT


def test_stop_loses_every_session_without_it(start_box: StartBox, repo: Repo) -> None:
    """The same with `sleep` as PID 1: each leaves its record and no saved work; so the above can fail."""
    box = start_box(repo.path, "infinity", entrypoint="sleep")
    work(box, EIGHT)
    assert box.end(2) == 137
    assert box.reports() == []
    assert [name for name in repo.branches() if name.endswith("-wip")] == []
    assert [is_locked(record) for record in records(repo)] == [False] * EIGHT


def test_session_outlives_its_client(start_box: StartBox, repo: Repo) -> None:
    """A killed `docker exec` leaves its session alive, and `docker stop` has it saved."""
    box = start_box(repo.path)
    with subprocess.Popen(
        ("docker", "exec", str(box.container.id), *SESSION),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as client:
        wait_for_drafts(box, 1)
        client.kill()
    [record] = records(repo)
    never(lambda: not is_locked(record), "it ended with its client")
    assert box.end() == 0
    assert_saved(repo, box, 1)


def test_pause(start_box: StartBox, repo: Repo) -> None:
    """A paused container goes on where it was, and can be stopped."""
    box = start_box(repo.path)
    work(box, 1)
    box.container.pause()
    [record] = records(repo)
    assert is_locked(record)
    box.container.unpause()
    never(lambda: not is_locked(record), "it ended")
    assert box.end() == 0
    assert_saved(repo, box, 1)


def test_restart(start_box: StartBox, repo: Repo) -> None:
    """`docker restart` saves every session; the container comes back, and a new session can work in it."""
    box = start_box(repo.path)
    work(box, 2)
    box.container.restart(timeout=10)
    assert_saved(repo, box, 2)
    work(box, 1)
    assert box.end() == 0
    assert_saved(repo, box, 3)


def test_start_after_kill(start_box: StartBox, repo: Repo) -> None:
    """What `docker kill` leaves is finished when the container starts again."""
    box = start_box(repo.path)
    work(box, 2)
    box.container.kill()
    box.container.wait(timeout=60)
    assert [is_locked(record) for record in records(repo)] == [False, False]
    box.container.start()
    box.eventually(lambda: not records(repo), "the sweep")
    assert_saved(repo, box, 2, "killed")


def test_new_container_after_a_removed_one(start_box: StartBox, repo: Repo) -> None:
    """What `docker rm --force` leaves is finished by the next container on the project."""
    box = start_box(repo.path)
    work(box, 2)
    box.container.remove(force=True, v=True)
    assert len(records(repo)) == 2
    box = start_box(repo.path)
    box.eventually(lambda: not records(repo), "the sweep")
    assert_saved(repo, box, 2, "killed")


def test_hup_sweeps(start_box: StartBox, repo: Repo) -> None:
    """`docker kill --signal HUP` has what a killed session left finished."""
    box = start_box(repo.path)
    work(box, 1)
    box.run("sh", "-c", f"kill -KILL {box.record()['pid']}")
    [record] = records(repo)
    box.eventually(lambda: not is_locked(record), "it to die")
    box.container.kill("HUP")
    box.eventually(lambda: not records(repo), "the sweep")
    assert_saved(repo, box, 1, "killed")


def make_orphans(box: Box) -> None:
    """Leave eight processes without a parent, and wait for their end."""
    box.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (sleep 0.1; touch /tmp/ended-$i) & done")
    box.eventually(lambda: box.run("sh", "-c", "ls /tmp/ended-*").stdout.count("\n") == EIGHT, "their end")


def zombies(box: Box) -> int:
    """Return how many processes of a container have ended and were not reaped."""
    return int(box.run("sh", "-c", "cat /proc/[0-9]*/status | grep --count '^State:.Z'").stdout)


def test_no_zombies(start_box: StartBox, repo: Repo) -> None:
    """Orphans of `docker exec` are reaped when they have ended."""
    box = start_box(repo.path)
    make_orphans(box)
    box.eventually(lambda: not zombies(box), "them to be reaped")
    assert zombies(box) == 0


def test_zombies_without_it(start_box: StartBox, repo: Repo) -> None:
    """The same with `sleep` as PID 1 leaves them; so the above can fail."""
    box = start_box(repo.path, "infinity", entrypoint="sleep")
    make_orphans(box)
    box.eventually(lambda: zombies(box) == EIGHT, "eight zombies")


@pytest.mark.parametrize("init", [False, True], ids=["", "--init"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("sh -c true", 0),
        ("--stop-timeout 5s -- sh -c true", 0),
        ("grep --no-such-option", 2),
        ("no-such-command", 127),
        ("/etc/passwd", 126),
        ("ralph-wrap run --no-such-option", 2),
        ("--no-such-option", 2),
    ],
)
def test_status_of_a_command(start_box: StartBox, repo: Repo, words: str, status: int, init: bool) -> None:
    """`docker run IMAGE COMMAND` ends as the command did."""
    assert start_box(repo.path, *words.split(), init=init).wait() == status


def test_session_as_the_command(start_box: StartBox, repo: Repo) -> None:
    """`docker run IMAGE ralph-wrap run` is isolated, saved by `docker stop`, and ends by its signal."""
    box = start_box(repo.path, *SESSION)
    wait_for_drafts(box, 1)
    assert box.end() == 128 + 15
    assert_saved(repo, box, 1)


def test_it_is_small(start_box: StartBox, repo: Repo) -> None:
    """Idle, PID 1 has less than 12 MB to itself (proportional set size)."""
    box = start_box(repo.path)

    def size() -> int | None:
        busy = box.run("sh", "-c", "cat /proc/1/task/1/children").stdout.strip()
        found = re.search(r"^Pss:\s+(\d+) kB$", box.run("cat", "/proc/1/smaps_rollup").stdout, re.MULTILINE)
        return int(found[1]) if found and not busy else None

    assert eventually(size, "the sweep to end", CAP) < 12_000


def test_a_root_session_under_the_init_of_a_user(start_box: StartBox, repo: Repo) -> None:
    """The container says that it could not tell the session, which is swept by the next one."""
    box = start_box(repo.path, user="1000:1000")
    exec_id = box.engine.api.exec_create(str(box.container.id), list(SESSION), user="0")["Id"]
    box.engine.api.exec_start(exec_id, detach=True)
    wait_for_drafts(box, 1)
    assert box.end() == 0
    log = box.log()
    assert re.search(r"cannot tell \d+ \S+ \(session \S+\): Operation not permitted", log), log
    box = start_box(repo.path)
    box.eventually(lambda: not records(repo), "the sweep")
    assert_saved(repo, box, 1, "killed")
