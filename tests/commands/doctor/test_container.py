"""What would go wrong in a container; each check is seen to fail, and to pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralph_wrap.commands.doctor import container
from tests.commands.doctor.world import HOST, OWN, World
from tests.support.needs import needs_other_users

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

UID, GID = 54321, 54322
"""A user without a passwd entry."""

INIT = ("/usr/bin/python3", "/usr/local/bin/ralph-wrap", "init")
RUNNING_INIT = ("/usr/bin/python3", "-P", "-X", "utf8", "-m", "ralph_wrap.interfaces.init")
"""What it becomes."""


EXECUTED = 7777
"""The pid of a process that no world has: nothing leads from it to PID 1."""

# PID 1


def test_a_container_without_exec_has_no_problem(tmp_path: Path) -> None:
    """A session below PID 1 ends with it: that is a note. One that exec has started does not."""
    world = World(tmp_path / "world", OWN, ".dockerenv")
    for pid, parent in ((20, 1), (21, 20), (30, 0), (31, 30)):
        world.process(pid, parent, "sh")
    verdicts = {pid: container.first_process(world.root, pid).verdict for pid in (20, 21, 30, 31)}
    assert verdicts == {20: "note", 21: "note", 30: "FAIL", 31: "FAIL"}


def test_a_daemon_that_the_first_process_adopted_is_none_that_it_has_started(tmp_path: Path) -> None:
    """As the server of a tmux that docker exec has started, with its shells: docker stop kills them."""
    world = World(tmp_path / "world", OWN, ".dockerenv")
    world.process(20, 1, "tmux")
    world.process(21, 20, "sh")
    world.process(30, 1, "sudo")
    world.process(31, 30, "sh")
    for leader in (20, 21, 31):
        world.lead(leader)
    verdicts = {pid: container.first_process(world.root, pid).verdict for pid in (20, 21, 30, 31)}
    assert verdicts == {20: "FAIL", 21: "FAIL", 30: "note", 31: "note"}


def test_a_host_is_no_container(host: Path) -> None:
    """Nothing there stops without a signal."""
    check = container.first_process(host, EXECUTED)
    assert (check.verdict, check.found) == ("ok", "/sbin/init; this is not a container")


@pytest.mark.parametrize(
    ("namespace", "mark", "cgroup"),
    [
        (OWN, ".dockerenv", "0::/\n"),
        (OWN, "run/.containerenv", "0::/\n"),
        (OWN, "", "4:memory:/docker/0123\n0::/\n"),
        (OWN, "", "4:memory:/kubepods/besteffort/pod0\n"),
        (OWN, "", "0::/\n"),
    ],
)
def test_a_container_has_to_have_our_init(tmp_path: Path, namespace: str, mark: str, cgroup: str) -> None:
    """Whichever way it is known; with another PID 1 its sessions are killed without a word."""
    world = World(tmp_path / "world", namespace, mark, cgroup)
    world.process(1, 0, "sleep", "infinity")
    check = container.first_process(world.root, EXECUTED)
    assert check.verdict == "FAIL"
    assert check.found.startswith("sleep infinity; this is a container (")
    assert "--entrypoint ralph-wrap IMAGE init" in check.fix
    world.process(1, 0, *INIT)
    assert container.first_process(world.root, EXECUTED).verdict == "ok"


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (INIT, "ok"),
        ((*INIT, "--stop-timeout", "8"), "ok"),
        ((*INIT, "--", "sleep", "infinity"), "ok"),
        (("python3", "-P", "-m", "ralph_wrap", "init"), "ok"),
        (("/opt/python3.12", "-X", "dev", "/opt/ralph-wrap", "init"), "ok"),
        (("ralph-wrap", "init"), "ok"),
        (("python3", "ralph_wrap", "init"), "FAIL"),
        (("sh", "ralph-wrap", "init"), "FAIL"),
        (("/usr/bin/python3", "/usr/local/bin/ralph-wrap", "run", "--", "init"), "FAIL"),
        (("sh", "-c", "ralph-wrap init"), "FAIL"),
        (("cat", "ralph-wrap", "initial"), "FAIL"),
        (("/lib/systemd/systemd",), "FAIL"),
        ((), "FAIL"),
    ],
)
def test_our_init_is_known_by_its_command_line(box: World, words: tuple[str, ...], verdict: str) -> None:
    """And by nothing that only looks like it."""
    box.process(1, 0, *words)
    assert container.first_process(box.root, EXECUTED).verdict == verdict


@pytest.mark.parametrize(
    ("first", "child", "verdict"),
    [
        ("/sbin/docker-init", INIT, "ok"),
        ("/usr/bin/tini", INIT, "ok"),
        ("/bin/sh", INIT, "FAIL"),
        ("/sbin/docker-init", ("sleep", "infinity"), "FAIL"),
    ],
)
def test_our_init_may_be_below_one_that_forwards(
    box: World, first: str, child: tuple[str, ...], verdict: str
) -> None:
    """A shell does not forward, and the parent of what ``docker exec`` starts is outside the container."""
    box.process(1, 0, first, "--", *child)
    box.process(7, 1, *child)
    box.process(8, 0, *INIT)
    assert container.first_process(box.root, EXECUTED).verdict == verdict


@needs_other_users
@pytest.mark.parametrize(("uid", "verdict"), [(0, "ok"), (UID, "FAIL")])
def test_our_init_has_to_be_allowed_to_tell(box: World, uid: int, verdict: str) -> None:
    """Only root signals the processes of everybody."""
    box.process(1, 0, *INIT)
    os.chown(box.root / "proc/1", uid, GID)
    check = container.first_process(box.root, EXECUTED)
    cannot = f"runs as user id {uid} and cannot signal sessions of user id 0"
    assert (check.verdict, cannot in check.found) == (verdict, verdict == "FAIL")


def test_a_machine_in_a_container(tmp_path: Path) -> None:
    """Where systemd is PID 1 and no engine has left a mark, it says what stops; elsewhere it does not."""
    world = World(tmp_path / "world", OWN)
    world.process(1, 0, "/lib/systemd/systemd", "--system")
    assert container.first_process(world.root, EXECUTED).verdict == "ok"
    (world.root / ".dockerenv").touch()
    assert container.first_process(world.root, EXECUTED).verdict == "FAIL"


def test_a_container_that_sees_the_host(tmp_path: Path) -> None:
    """Its first process is not PID 1, which belongs to the host."""
    check = container.first_process(World(tmp_path / "world", HOST, ".dockerenv").root, EXECUTED)
    assert (check.verdict, "/sbin/init, which is the host's" in check.found) == ("FAIL", True)


def test_a_long_command_line_is_cut(box: World) -> None:
    """It is one line of an answer."""
    box.process(1, 0, "server", "--key", "x" * 1000)
    assert len(container.first_process(box.root, EXECUTED).found) < 120


@pytest.mark.parametrize(
    ("words", "verdict", "said"),
    [
        (("8.0", "no"), "ok", "init gives sessions 8 s"),
        (("0.5", "yes", "x"), "ok", "init gives sessions 0.5 s"),
        (("8.0", "no", "x", "60"), "ok", "init gives sessions 8 s"),
        (("60.0", "no"), "note", "docker stop --time 62"),
        (("10.0", "no"), "note", "docker stop --time 12"),
    ],
)
def test_the_time_to_stop(box: World, words: tuple[str, ...], verdict: str, said: str) -> None:
    """It has to be shorter than docker's, which is 10 s by default."""
    box.process(1, 0, *RUNNING_INIT, *words)
    check = container.stop_timeout(box.root)
    assert (check.verdict, said in check.found) == (verdict, True), check.found


def test_the_time_to_stop_is_not_known_while_init_reads_its_command_line(box: World) -> None:
    """It becomes another program, on whose command line the time stands."""
    box.process(1, 0, *INIT)
    check = container.stop_timeout(box.root)
    assert (check.verdict, check.found) == ("ok", "ralph-wrap init is starting")


def test_there_is_no_time_to_stop_without_our_init(box: World, host: Path) -> None:
    """The check of PID 1 is about that."""
    for root in (box.root, host):
        check = container.stop_timeout(root)
        assert (check.verdict, check.found) == ("ok", "no ralph-wrap init is running here")
