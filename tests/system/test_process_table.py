"""What the system tells of processes, with a ``/proc`` and without one."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil
import pytest

from ralph_wrap.system import process_table
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compares with /proc")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[int]:
    """Yield the pid of a shell whose child writes a file; a session stands in their environment."""
    script = "cd work; sleep 600 > ../written < ../read & echo; wait"
    (tmp_path / "work").mkdir()
    (tmp_path / "read").touch()
    environ = {**os.environ, "RALPH_SESSION_ID": "check"}
    with subprocess.Popen(
        ("sh", "-c", script), cwd=tmp_path, env=environ, stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"\n"
        [child] = process_table.children(shell.pid)
        eventually(lambda: process_table.name(child) == "sleep", "its execve(2)")
        yield shell.pid
        os.killpg(shell.pid, signal.SIGKILL)


@pytest.fixture
def no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take ``/proc`` away from the module; psutil, which is asked then, has its own way to know."""
    monkeypatch.setattr(process_table, "PROC", tmp_path / "absent")


def _known(shell: int) -> dict[str, object]:
    """Return all that is known of a shell and its child."""
    [child] = process_table.children(shell)
    return {
        "children": child,
        "descendants": process_table.descendants([shell]),
        "ancestors": process_table.ancestors(child),
        "environments": [sorted(filter(None, process_table.environment(pid))) for pid in (shell, child)],
        "is program": [process_table.is_program(pid) for pid in (shell, child)],
        "names": [process_table.name(pid) for pid in (shell, child)],
        "directory": process_table.paths_in(child, Path("/"))[0],
        "is there": {shell, child, os.getpid()} <= {*process_table.pids()},
    }


def test_psutil_says_the_same(tree: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real tree of processes."""
    by_proc = _known(tree)
    monkeypatch.setattr(process_table, "PROC", tmp_path / "absent")
    assert _known(tree) == by_proc
    assert by_proc["names"] == ["sh", "sleep"]


@pytest.mark.usefixtures("no_proc")
def test_paths_are_found_without_proc(tree: int, tmp_path: Path) -> None:
    """The working directory, and open files."""
    [child] = process_table.children(tree)
    expected = {os.fspath(tmp_path / name) for name in ("work", "written")}
    assert expected <= {*process_table.paths_in(child, tmp_path)}
    assert {child} <= {pid for pid, name in process_table.occupants(tmp_path) if name == "sleep"}


def test_a_file_that_is_only_read_is_not_used(tree: int, tmp_path: Path) -> None:
    """With a ``/proc``, which knows the difference."""
    [child] = process_table.children(tree)
    found = process_table.paths_in(child, tmp_path)
    assert found == [os.fspath(tmp_path / name) for name in ("work", "written")]


def test_open_files_may_be_left_out(tree: int, tmp_path: Path) -> None:
    """The working directory alone is the cheaper question."""
    [child] = process_table.children(tree)
    assert process_table.paths_in(child, tmp_path, open_files=False) == [os.fspath(tmp_path / "work")]


def test_a_process_is_inside_also_if_its_files_cannot_be_listed(tree: int, tmp_path: Path) -> None:
    """Here because we have no descriptor left; a right for the one look need not be one for the other."""
    [child] = process_table.children(tree)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            process_table.paths_in(child, tmp_path / "absent")
        found = process_table.paths_in(child, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == [os.fspath(tmp_path / "work")]


def test_only_processes_inside(tree: int, tmp_path: Path) -> None:
    """The directory itself counts, a directory whose name begins like it does not."""
    [child] = process_table.children(tree)
    assert process_table.paths_in(child, tmp_path / "work") == [os.fspath(tmp_path / "work")]
    assert process_table.paths_in(child, tmp_path / "wor") == []


@pytest.mark.usefixtures("no_proc")
def test_a_process_is_itself_without_proc(tree: int) -> None:
    """It started in the past, on a kernel that a boot time names, and a zombie is dead."""
    mine, started = process_table.start_time(os.getpid()), process_table.start_time(tree)
    assert mine is not None
    assert started is not None
    assert mine <= started
    assert re.fullmatch(r"booted-\d+", process_table.boot_id())
    with subprocess.Popen("true") as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert process_table.start_time(ended.pid) is None
        assert not process_table.is_program(ended.pid)


@pytest.mark.parametrize("has_proc", [True, False])
def test_nothing_is_known_of_a_process_that_has_ended(
    has_proc: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way it is asked for."""
    with subprocess.Popen("true") as ended:
        pass
    if not has_proc:
        monkeypatch.setattr(process_table, "PROC", tmp_path / "absent")
    assert process_table.children(ended.pid) == []
    assert process_table.ancestors(ended.pid) == {ended.pid}
    assert process_table.environment(ended.pid) == []
    assert not process_table.is_program(ended.pid)
    assert process_table.start_time(ended.pid) is None


@pytest.mark.usefixtures("no_proc")
def test_a_process_of_another_user_is_not_taken_for_dead(tree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may be refused: the environment is unknown, and a question about life raises an error."""

    def refuse(_self: psutil.Process) -> NoReturn:
        raise psutil.AccessDenied(tree)

    for question in ("environ", "status"):
        monkeypatch.setattr(psutil.Process, question, refuse)
    assert process_table.environment(tree) == []
    with pytest.raises(PermissionError):
        process_table.start_time(tree)


def test_another_thread_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no ``/proc``, there may be one."""
    question = "from ralph_wrap.system.process_table import has_other_threads as ask; print(ask(), end=' ')"
    thread = "import threading; end = threading.Event(); threading.Thread(target=end.wait).start()"
    program = f"{question}\n{thread}\nprint(ask())\nend.set()"
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True"]
    monkeypatch.setattr(process_table, "PROC", tmp_path)
    assert process_table.has_other_threads()


def test_the_addresses_are_those_of_this_process_in_any_pid_namespace(
    tree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mount of its own, ``/proc`` has another process under our pid."""
    words = os.fsencode("\0".join(sys.orig_argv)) + b"\0"
    monkeypatch.setattr(os, "getpid", lambda: tree)
    begin, end, *_ = process_table.title_addresses()
    assert ctypes.string_at(begin, end - begin) == words
