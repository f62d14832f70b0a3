"""A daemon that outlives a killed session of `docker exec`, and says nothing of it."""

import pytest

from tests.container.box import PROJECT, Box, StartBox
from tests.security.test_daemons import HIDDEN
from tests.support.repo import Repo

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
]

AGENT = f"(setsid env -i bash {PROJECT}/daemon &); touch /tmp/up; sleep 600"


def _sleeping(box: Box, seconds: int) -> list[int]:
    """Return the processes of the container that sleep for some seconds; the image has no ``pgrep``."""
    found = box.run("sh", "-c", rf"grep -lsz '^{seconds}$' /proc/[0-9]*/cmdline")
    return [int(path.split("/")[2]) for path in found.stdout.split()]


def test_a_sweep_names_the_daemon_of_a_killed_session(start_box: StartBox, repo: Repo) -> None:
    """Of the processes in the container, it names this one: not PID 1, and no other `docker exec`."""
    repo.write("daemon", f"{HIDDEN}\ncd /\nexec sleep 599\n")
    box = start_box(repo.path)
    box.start("sleep", "601")
    box.start("ralph-wrap", "run", "--", "sh", "-c", AGENT)
    box.eventually(lambda: box.run("ls", "/tmp/up").status == 0 and _sleeping(box, 599), "the daemon")
    [daemon] = _sleeping(box, 599)
    box.run("sh", "-c", f"kill -KILL {box.record()['pid']}")
    named = f"lost their parent: {daemon} (sleep); perhaps its agent left them"
    box.eventually(lambda: box.run("ralph-wrap", "sweep").status == 0 and box.reports(), "the end")
    said = [path.read_text() for path in repo.path.glob(".ralph/run/sessions/*/events.jsonl")]
    assert [text.count(named) for text in said] == [1]
    assert f"to end them: kill {daemon}" in said[0]
    assert (_sleeping(box, 599), len(_sleeping(box, 601))) == ([daemon], 1)
