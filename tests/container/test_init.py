"""The life of a container whose PID 1 is `ralph-wrap init`, and of the sessions in it."""

import re

import pytest

from tests.container.box import Box, StartBox
from tests.container.workers import EIGHT, SESSION, Workers, records, zombies
from tests.support.repo import Repo
from tests.support.wait import CAP, eventually

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(180, func_only=True),  # the first test of a worker may wait for the image to be built
]


def make_orphans(box: Box) -> None:
    """Leave eight processes without a parent, and wait for their end."""
    box.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (sleep 0.1; touch /tmp/ended-$i) & done")
    box.eventually(lambda: box.run("sh", "-c", "ls /tmp/ended-*").stdout.count("\n") == EIGHT, "their end")


def test_no_zombies(start_box: StartBox, repo: Repo) -> None:
    """Orphans of `docker exec` are reaped when they have ended."""
    box = start_box(repo.path)
    make_orphans(box)
    box.eventually(lambda: not zombies(box), "them to be reaped")


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
    workers = Workers.find(box, 1)
    assert box.end() == 128 + 15
    workers.check("signal")


def test_it_is_small(start_box: StartBox, repo: Repo) -> None:
    """Idle, PID 1 has less than 12 MB to itself (proportional set size)."""
    box = start_box(repo.path)

    def size() -> int | None:
        busy = box.run("sh", "-c", "cat /proc/1/task/1/children").stdout.strip()
        is_itself = "ralph_wrap.interfaces.init" in box.run("cat", "/proc/1/cmdline").stdout
        found = re.search(r"^Pss:\s+(\d+) kB$", box.run("cat", "/proc/1/smaps_rollup").stdout, re.MULTILINE)
        return int(found[1]) if found and is_itself and not busy else None

    assert eventually(size, "the sweep to end", CAP) < 12_000


def test_a_root_session_under_the_init_of_a_user(start_box: StartBox, repo: Repo) -> None:
    """The container says that it could not tell the session, which is swept by the next one."""
    box = start_box(repo.path, user="1000:1000")
    exec_id = box.engine.api.exec_create(str(box.container.id), list(SESSION), user="0")["Id"]
    box.engine.api.exec_start(exec_id, detach=True)
    workers = Workers.find(box, 1)
    assert box.end() == 0
    log = box.log()
    assert re.search(r"cannot signal \d+ \S+ \(session \S+\): Operation not permitted", log), log
    box = start_box(repo.path)
    box.eventually(lambda: not records(repo), "the sweep")
    workers.check("killed")
