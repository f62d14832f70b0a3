"""PID 1 as a process that must hold back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.needs import DEVICES, needs, needs_pid_namespaces, program
from tests.support.pid1 import PROMPT, Container, listener
from tests.support.sessions import PROGRAM
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


TINI = program("tini", "tini")
DOCKER_INIT = program("docker-init", "docker.io", "REQUIRE_DOCKER")

# -- where it must hold back --

# Tests of processes that must get no signal have a pid namespace: breaking the program must be safe.
ELSEWHERE = {
    "under a shell": ("sh", "-c", '"$@"; exit $?', "sh"),
    "below a small init": ("tini", "--", "sh", "-c", '"$@"; exit $?', "sh"),
}


@needs_pid_namespaces
@pytest.mark.parametrize(
    "under",
    [
        pytest.param(under, id=name, marks=[needs(TINI)] * (under[0] == "tini"))
        for name, under in ELSEWHERE.items()
    ],
)
def test_no_broadcast_elsewhere(project: Path, under: tuple[str, ...]) -> None:
    """If it is not the init of the container, it signals neither strangers nor sessions without a record."""
    with Container(project, "--stop-timeout=1s", *listener(project, "own"), under=under) as container:
        eventually((project / "own.pid").exists, "the command to listen")
        container.listen("stranger")
        container.listen("session", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: not Path(f"/proc/{container.pid}").exists(), "its end")
        assert container.heard("own") == ["SIGTERM"]
        assert [container.heard(name) for name in ("stranger", "session")] == [[], []]
        assert container.log[0].startswith("not the init of a container")


@needs_pid_namespaces
def test_no_broadcast_into_another_namespace(project: Path) -> None:
    """A ``/proc`` that shows the host's processes shows numbers that mean others here."""
    log = project / "log"
    words = ("unshare", "--pid", "--fork", "--kill-child", PROGRAM, "init")
    with log.open("wb") as stderr, subprocess.Popen(words, cwd=project, stderr=stderr) as outer:
        try:
            eventually(lambda: "not the init of a container" in log.read_text(), "it to say so")
        finally:
            outer.kill()


@needs_pid_namespaces
@pytest.mark.parametrize(
    "small_init",
    [pytest.param("tini", marks=needs(TINI)), pytest.param("docker-init", marks=needs(DOCKER_INIT))],
)
def test_behind_a_small_init(project: Path, small_init: str) -> None:
    """As its direct child (``docker run --init``) it is the init all the same, and leaves that one alone."""
    with Container(project, under=(small_init, "--")) as container:
        assert container.pid != container.first
        container.rest()
        container.listen("session", program="ralph-wrap")
        container.listen("stranger")
        os.kill(container.first, signal.SIGTERM)
        assert container.wait() == 0
        assert [container.heard(name) for name in ("session", "stranger")] == [["SIGTERM"], ["SIGTERM"]]
        assert not [line for line in container.log if "docker-init" in line or "tini" in line]


@needs_pid_namespaces
@pytest.mark.parametrize(
    ("record", "signalled"),
    [
        ({}, True),
        ({"session": "../../etc"}, True),
        ({"start_time": 1.5}, False),
        ({"start_time": "1.5"}, False),
        ({"start_time": None}, False),
        ({"pid_namespace": "pid:[1]"}, False),
        ({"pid_namespace": None}, False),
        ({"pid": 1}, False),
        ({"pid": True}, False),
        ({"pid": -1}, False),
        ({"pid": 0}, False),
        ({"pid": "3"}, False),
        ({"pid": 1 << 80}, False),
        ({"pid": {"a": []}}, False),
    ],
    ids=str,
)
def test_a_record_names_a_session(project: Path, record: dict[str, Any], signalled: bool) -> None:
    """Outside a container it is what makes a process ours to tell; it must fit the process in every way."""
    with Container(project, "--stop-timeout=1s", under=ELSEWHERE["under a shell"]) as container:
        container.rest()
        container.listen("session", 1, f"record={json.dumps(record)}")
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert container.heard("session") == (["SIGTERM"] if signalled else [])
        assert not [line for line in container.log if "etc" in line]


@needs_pid_namespaces
def test_a_record_names_no_process_without_the_lock_of_its_session(project: Path) -> None:
    """An agent can write the pid of any process of the user into a record, but not take a lock for it."""
    with Container(project, "--stop-timeout=1s", under=ELSEWHERE["under a shell"]) as container:
        container.rest()
        container.listen("session", 1, "record={}", "unlocked=1")
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert container.heard("session") == []


@needs_pid_namespaces
def test_a_record_without_the_lock_hides_no_process_from_the_end(inside: Container) -> None:
    """Its children get SIGTERM: the process that it names is no session, which would end them itself."""
    inside.listen("shell", 2, "child=server", "record={}", "unlocked=1")
    inside.send(signal.SIGTERM)
    assert eventually(lambda: inside.heard("server"), "SIGTERM in the server") == ["SIGTERM"]
    inside.send(signal.SIGTERM)
    assert inside.wait() == 0


def _deep(path: Path) -> None:
    path.write_text("[" * 60_000)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


BAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "a device": lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5)),
    "a directory": Path.mkdir,
    "nothing": Path.touch,
    "a list": lambda path: path.write_text("[1]"),
    "half of one": lambda path: path.write_text('{"pid": '),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\0"),
    "a large number": lambda path: path.write_text('{"pid": ' + "9" * 50_000 + "}"),
    "deep": _deep,
    "huge": _huge,
}


@needs_pid_namespaces
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[needs(DEVICES)] * (name == "a device"))
        for name, make in BAD.items()
    ],
)
def test_bad_records(inside: Container, make: Callable[[Path], object]) -> None:
    """They neither hold up nor end PID 1, nor hide a good one."""
    agents = inside.project / ".ralph" / "run" / "agents"
    agents.mkdir(parents=True)
    for name in ("0000", "ffff"):
        make(agents / f"{name}.json")
    inside.listen("session", 1, "record={}")
    begun = time.monotonic()
    inside.send(signal.SIGTERM)
    assert (inside.wait(), inside.heard("session")) == (0, ["SIGTERM"])
    assert time.monotonic() - begun < PROMPT
    assert [line for line in inside.log if "(session 20260101T000000Z-abcd)" in line]
    assert not [line for line in inside.log if "error" in line]


@needs_pid_namespaces
def test_records_by_the_thousand(inside: Container) -> None:
    """A project full of large ones does not keep PID 1 from telling."""
    agents = inside.project / ".ralph" / "run" / "agents"
    agents.mkdir(parents=True)
    content = json.dumps({str(number): [number] for number in range(4000)})
    (agents / "original").write_text(content)
    for number in range(6000):
        os.link(agents / "original", agents / f"{number:04x}.json")
    inside.listen("session", program="ralph-wrap")
    begun = time.monotonic()
    inside.send(signal.SIGTERM)
    eventually(lambda: inside.heard("session"), "it to get SIGTERM")
    assert time.monotonic() - begun < PROMPT
    assert inside.wait() == 0


@needs_pid_namespaces
def test_a_record_that_names_the_init_hides_no_process(project: Path) -> None:
    """A process below PID 1 is not below a session, whatever a record says."""
    words = ("sh", "-c", f"{' '.join(listener(project, 'server'))} & wait")
    with Container(project, *words) as container:
        eventually((project / "server.pid").exists, "the server to listen")
        stat = Path(f"/proc/{container.pid}/stat").read_text().rpartition(")")[2].split()
        started = int(stat[19]) / os.sysconf("SC_CLK_TCK")
        record = json.dumps({"pid": 1, "start_time": started})
        container.listen("liar", 1, f"record={record}")
        container.send(signal.SIGTERM)
        container.wait()
        assert container.heard("server") == ["SIGTERM"]
