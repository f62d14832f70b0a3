"""What the system tells of processes."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import process_table
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def test_a_tree_of_processes(tree: int) -> None:
    """Its parts, above and below, what it executes and where."""
    [child] = process_table.children(tree)
    assert process_table.descendants([tree]) == [tree, child]
    assert {child, tree, os.getpid()} <= process_table.ancestors(child)
    assert [process_table.name(pid) for pid in (tree, child)] == ["sh", "sleep"]
    assert all(b"RALPH_SESSION_ID=check" in process_table.environment(pid) for pid in (tree, child))
    assert all(map(process_table.is_program, (tree, child)))
    assert {tree, child, os.getpid()} <= {*process_table.pids()}


def test_a_file_that_is_only_read_is_not_used(tree: int, tmp_path: Path) -> None:
    """Nobody loses work by that."""
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


def test_a_process_is_itself(tree: int) -> None:
    """It started in the past, and a zombie is dead."""
    mine, started = process_table.start_time(os.getpid()), process_table.start_time(tree)
    assert mine is not None
    assert started is not None
    assert mine <= started
    with subprocess.Popen("true") as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert process_table.start_time(ended.pid) is None
        assert not process_table.is_program(ended.pid)


def test_a_kernel_that_hides_its_id_is_named_by_its_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sandbox that shows only a part of ``/proc``."""
    monkeypatch.setattr(process_table, "PROC", tmp_path / "absent")
    assert re.fullmatch(r"booted-\d+", process_table.boot_id())


def test_nothing_is_known_of_a_process_that_has_ended() -> None:
    """Whatever is asked."""
    with subprocess.Popen("true") as ended:
        pass
    assert process_table.children(ended.pid) == []
    assert process_table.ancestors(ended.pid) == {ended.pid}
    assert process_table.environment(ended.pid) == []
    assert not process_table.is_program(ended.pid)
    assert process_table.start_time(ended.pid) is None


def test_another_thread_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no ``/proc``, there may be one."""
    question = "from ralph_wrap.system.process_table import has_other_threads as ask; print(ask(), end=' ')"
    thread = "import threading; end = threading.Event(); threading.Thread(target=end.wait).start()"
    program = f"{question}\n{thread}\nprint(ask())\nend.set()"
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True"]
    monkeypatch.setattr(process_table, "PROC", tmp_path)
    assert process_table.has_other_threads()
