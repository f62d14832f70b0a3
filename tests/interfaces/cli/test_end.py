"""How the program ends: Python frees no objects, but all else happens that happens at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import atexit, sys, threading
from ralph_wrap import __main__

def run():
    print("printed")
    sys.exit(status)

status = 3
__main__.run = run
{before}
__main__.main()
"""


def _end(before: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """Run a program that prints a line and exits with status 3, after some code; return how it ended."""
    code = _PROGRAM.format(before=before)
    environ = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        (sys.executable, "-c", code), env=environ, stdout=stdout, stderr=subprocess.PIPE, check=False
    )


def test_handlers_run_and_output_arrives() -> None:
    """What a handler prints comes after what the program printed."""
    ended = _end('atexit.register(print, "bye")')
    assert (ended.returncode, ended.stdout) == (3, b"printed\nbye\n")


def test_objects_are_not_freed() -> None:
    """Python would call this method at its end."""
    code = "class Last:\n    def __del__(self): print('freed', flush=True)\n\nlast = Last()"
    assert _end(code).stdout == b"printed\n"


def test_another_thread_is_waited_for() -> None:
    """As Python does at its end."""
    code = "threading.Thread(target=lambda: (threading.main_thread().join(), print('done'))).start()"
    assert _end(code).stdout == b"printed\ndone\n"


def test_output_that_cannot_be_written_is_an_error() -> None:
    """Python ends with this status if it cannot write what is left of its output."""
    with Path("/dev/full").open("wb") as full:
        assert _end("", full.fileno()).returncode == 120


def test_a_closed_stdout_changes_no_status() -> None:
    """Python has no object for an output that was closed at the start (``ralph-wrap run ... >&-``)."""
    code = _PROGRAM.format(before="__main__.run = lambda: sys.exit(status)")
    ended = subprocess.run(
        ("sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code.replace("__main__.run = run", "")),
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (3, b"")


def test_a_text_is_printed() -> None:
    """A status that is no number is a message."""
    ended = _end("status = 'a message'")
    assert (ended.returncode, ended.stderr) == (1, b"a message\n")
