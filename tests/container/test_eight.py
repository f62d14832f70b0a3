"""Eight dirty sessions by `docker exec`, and all that can happen to them and to their container."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from docker.errors import NotFound

from tests.container.box import Box, StartBox
from tests.container.workers import (
    ALIVE,
    DEAD,
    EIGHT,
    SESSION,
    Workers,
    assert_nothing_left,
    processes,
    records,
    zombies,
)
from tests.support.repo import Repo
from tests.support.wait import never

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(180, func_only=True),  # the first test of a worker may wait for the image to be built
]

MEMORY = "512m"
PATIENT = {"RALPH_WRAP_STOP_TIMEOUT": "55s"}
"""For tests of what a stop leaves: on a busy machine eight ends may take longer than docker's 10 s."""
GREEDY = ("python3", "-c", "hold = bytearray(1 << 30)")
"""Takes more than there is, and is the largest process by far."""
FIRST = "for pid in {pids}; do echo 1000 >/proc/$pid/oom_score_adj; done"
"""Have processes be those that the OOM killer takes (proc(5): oom_score_adj)."""


@pytest.fixture
def repo(repo: Repo) -> Iterator[Repo]:
    """Return a repository with work of the user's own in its main checkout; it must be intact at the end."""
    repo.write(".gitignore", ".ralph/worktrees/\n")
    repo.commit("the rule")
    repo.write("file.txt", "the user's own\n")
    repo.write("mine", "the user's own\n")
    before = (repo.fingerprint(), main_checkout(repo))  # with `git fsck`
    yield repo
    assert (repo.fingerprint(), main_checkout(repo)) == before


def main_checkout(repo: Repo) -> dict[str, bytes]:
    """Return the files of the main checkout; any other entry has no content."""
    there = [path for path in repo.path.iterdir() if path.name not in {".git", ".ralph"}]
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in there}


def stop(box: Box) -> None:
    """Do `docker stop`, soon a kill for a PID 1 that does not listen."""
    box.end(1)


def restart(box: Box) -> None:
    """Do `docker restart`, with a kill as above."""
    box.container.restart(timeout=1)


def kill(box: Box) -> None:
    """Do `docker kill`."""
    box.container.kill()
    box.wait()


def remove(box: Box) -> None:
    """Do `docker rm --force`."""
    box.container.remove(force=True, v=True)


def use_up_memory(box: Box, pids: str = "1") -> None:
    """Have the OOM killer end some processes; with PID 1 everything dies at once."""
    box.run("sh", "-c", FIRST.format(pids=pids))
    if pids == "1":
        box.start(*GREEDY)
        assert box.wait() == 137
    else:
        assert box.run(*GREEDY).status == 137


def revive(box: Box, another: Callable[[], Box]) -> Box:
    """Do `docker start`, or start another container if there is none any more."""
    try:
        box.container.start()
    except NotFound:
        return another()
    return box


def stop_and_start(box: Box, workers: Workers, *states: str) -> None:
    """Do `docker stop` and `docker start`, and check that nothing is lost, and nothing left."""
    assert box.end(60) == 0
    workers.check(*states)
    box.container.start()
    assert_nothing_left(box)


@pytest.mark.parametrize("init", [False, True], ids=["", "--init"])
def test_stop(start_box: StartBox, repo: Repo, init: bool) -> None:
    """`docker stop` reaches all sessions, which save their work and leave; PID 1 logs it."""
    box = start_box(repo.path, init=init, env=PATIENT)
    workers = Workers.start(box)
    stop_and_start(box, workers, *["signal"] * EIGHT)
    printed = re.findall(
        r"^ralph-wrap init: (asked to end|finished): \d+ \S+ \(session ", box.log(), re.MULTILINE
    )
    assert sorted(printed) == ["asked to end"] * EIGHT + ["finished"] * EIGHT


def test_restart(start_box: StartBox, repo: Repo) -> None:
    """`docker restart` does the same; the container comes back, and new sessions can work in it."""
    box = start_box(repo.path, env=PATIENT)
    workers = Workers.start(box)
    box.container.restart(timeout=60)
    workers.check(*["signal"] * EIGHT)
    assert box.run("ralph-wrap", "run", "--isolation=require", "--max-iterations=1", "--", "true").status == 0
    assert_nothing_left(box)


@pytest.mark.parametrize("die", [kill, use_up_memory, remove])
def test_death_of_the_container(start_box: StartBox, repo: Repo, die: Callable[[Box], None]) -> None:
    """What dies with its container is whole, and finished when that or another one starts on the project."""
    start = partial(start_box, repo.path, memory=MEMORY)
    box = start()
    workers = Workers.start(box)
    die(box)
    workers.check(*[DEAD] * EIGHT)
    box = revive(box, start)
    box.eventually(lambda: not records(repo), "the sweep")
    workers.check(*["killed"] * EIGHT)
    assert_nothing_left(box)


@pytest.mark.parametrize("end", [stop, restart, kill, use_up_memory, remove])
def test_without_it(start_box: StartBox, repo: Repo, end: Callable[[Box], None]) -> None:
    """The same with `sleep` as PID 1: nothing is saved, then or later; so the above can fail."""
    start = partial(start_box, repo.path, "infinity", entrypoint="sleep", memory=MEMORY)
    box = start()
    workers = Workers.start(box)
    end(box)
    box = revive(box, start)
    assert processes(box) == []
    workers.check(*[DEAD] * EIGHT)


def test_oom_of_an_agent(start_box: StartBox, repo: Repo) -> None:
    """It has failed as any other: its session saves what is there, and the other ones go on."""
    box = start_box(repo.path, memory=MEMORY, env=PATIENT)
    workers = Workers.start(box)
    use_up_memory(box, f"$(cat /proc/{workers.pids[0]}/task/*/children)")
    box.eventually(lambda: len(records(repo)) == EIGHT - 1, "its session to end")
    workers.check("max-iterations", *[ALIVE] * (EIGHT - 1))
    assert [report["exit_status"] for report in box.reports()] == [137]
    box.eventually(lambda: not zombies(box), "both to be reaped")
    stop_and_start(box, workers, "max-iterations", *["signal"] * (EIGHT - 1))


def test_oom_of_a_session(start_box: StartBox, repo: Repo) -> None:
    """A sweep ends its agent and saves its work, and the other ones go on."""
    box = start_box(repo.path, memory=MEMORY, env=PATIENT)
    workers = Workers.start(box)
    use_up_memory(box, str(workers.pids[0]))
    box.eventually(lambda: not all(workers.are_locked()), "its end")
    workers.check(DEAD, *[ALIVE] * (EIGHT - 1))
    swept = box.run("ralph-wrap", "sweep")
    assert swept.status == 0, swept.stderr
    workers.check("killed", *[ALIVE] * (EIGHT - 1))
    box.eventually(lambda: not zombies(box), "its agent to be reaped")
    stop_and_start(box, workers, "killed", *["signal"] * (EIGHT - 1))


def test_pause(start_box: StartBox, repo: Repo) -> None:
    """The paused count as alive, also from another container, and go on where they were."""
    box = start_box(repo.path, env=PATIENT)
    workers = Workers.start(box)
    box.pause()
    other = start_box(repo.path)
    swept = other.run("ralph-wrap", "sweep")
    assert (swept.status, swept.stdout) == (0, ""), swept.stderr
    workers.check(*[ALIVE] * EIGHT)
    remove(other)
    box.container.unpause()
    never(lambda: not all(workers.are_locked()), "it ended")
    stop_and_start(box, workers, *["signal"] * EIGHT)


def test_killed_clients(start_box: StartBox, repo: Repo) -> None:
    """Whose `docker exec` is killed, with a terminal or without, lives on until `docker stop`."""
    box = start_box(repo.path, env=PATIENT)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                subprocess.Popen(
                    ("docker", "exec", f"--tty={number % 2 == 0}", str(box.container.id), *SESSION),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            for number in range(EIGHT)
        ]
        workers = Workers.find(box, EIGHT)
        for client in clients:
            client.kill()
    never(lambda: not all(workers.are_locked()), "it ended with its client")
    workers.check(*[ALIVE] * EIGHT)
    stop_and_start(box, workers, *["signal"] * EIGHT)


def kill_all(box: Box, workers: Workers) -> None:
    """Kill the sessions, and wait until all are dead; their agents live on."""
    box.run("sh", "-c", f"kill -KILL {' '.join(map(str, workers.pids))}")
    box.eventually(lambda: not any(workers.are_locked()), "their end")
    workers.check(*[DEAD] * EIGHT)
    box.eventually(lambda: processes(box) == ["sleep S"] * EIGHT, "only the agents to be left")


def test_hup(start_box: StartBox, repo: Repo) -> None:
    """`docker kill --signal HUP` has killed sessions finished: their agents too, which are reaped."""
    box = start_box(repo.path, env=PATIENT)
    workers = Workers.start(box)
    kill_all(box, workers)
    box.container.kill("HUP")
    box.eventually(lambda: not records(repo), "the sweep")
    workers.check(*["killed"] * EIGHT)
    assert_nothing_left(box)


def test_zombies_without_it(start_box: StartBox, repo: Repo) -> None:
    """With `sleep` as PID 1 the dead agents stay, since nothing reaps them; so the above can fail."""
    box = start_box(repo.path, "infinity", entrypoint="sleep")
    workers = Workers.start(box)
    kill_all(box, workers)
    assert box.run("ralph-wrap", "sweep").status == 0
    workers.check(*["killed"] * EIGHT)
    assert processes(box).count("sleep Z") == EIGHT
