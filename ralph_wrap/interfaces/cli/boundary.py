"""The one place where an error becomes words and an exit status."""

from __future__ import annotations

import json as json_format
import os
import select
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ralph_wrap.errors import RalphError
from ralph_wrap.system import privileges
from ralph_wrap.system.log import Log, on_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = 1
"""Of the JSON envelope."""

_READER_LEFT = 141  # as a shell counts a program that SIGPIPE has ended, which Python ignores


@contextmanager
def boundary(tool: str, *, json: bool) -> Iterator[None]:
    """Turn an error into a message on stderr, or the envelope on stdout, and its exit status.

    Arguments:
        tool: the command, for the envelope.
        json: whether its answer is JSON.

    """
    try:
        with _stdout_written():
            yield
    except RalphError as error:
        with _stdout_written():
            if json:
                refuse(tool, error)
            else:
                complain(error)
        raise SystemExit(error.exit_code) from None
    except Exception as error:  # noqa: BLE001 -- a bug: its status must not look like an agent's
        complain(RalphError(f"ralph-wrap failed: {error!r}", "please report this, with the traceback below"))
        import traceback  # noqa: PLC0415 -- not for those that work

        traceback.print_exc()
        raise SystemExit(RalphError.exit_code) from None


@contextmanager
def _stdout_written() -> Iterator[None]:
    """See to it that what was printed is written; who stops reading it ends us, and that is no error."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # closed by whoever started us
                sys.stdout.flush()
    except BrokenPipeError:
        stdout = select.poll()
        stdout.register(1, 0)
        if not stdout.poll(0):  # it is another pipe that has broken
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it once more
        raise SystemExit(_READER_LEFT) from None


_SELDOM_USED = (
    "ralph_wrap.interfaces.cli.approval_prompt",
    "ralph_wrap.interfaces.cli.merge_on_complete",
    "ralph_wrap.config.agent_tables",
    "ralph_wrap.config.job",
    "ralph_wrap.config.toml_lines",
    "ralph_wrap.loop",
    "ralph_wrap.loop.setup",
    "ralph_wrap.system.output_relay",
    "ralph_wrap.session.session",
    "ralph_wrap.commands.sweep",
    "ctypes",
    "difflib",
    "hashlib",
    "shutil",
    "tempfile",
    "tomllib",
    "traceback",
)


def become_owner(project: Path, log: Log, *later: str) -> dict[str, str]:
    """Give up root if the project is somebody else's, and return the environment to go on with.

    What is otherwise loaded when it is needed is loaded before: Python may stand where only root can read.

    Arguments:
        project: the directory that was named.
        log: what its narration needs is loaded, too.
        later: modules that this command alone loads afterwards.

    Raises:
        RalphError: the change was refused.

    """

    def load_everything() -> None:
        from ralph_wrap import agents  # noqa: PLC0415 -- few commands need them
        from ralph_wrap.agents import output  # noqa: PLC0415
        from ralph_wrap.worktree.loading import load_all  # noqa: PLC0415

        log.load()
        for name in (*_SELDOM_USED, *later):
            import_module(name)
        load_all()
        for name in agents.NAMES:
            import_module(f"{agents.__name__}.{name}")
        for name in output.FORMATS:
            import_module(f"{output.__name__}.{name}")

    return privileges.become_owner(project, os.environ, before=load_everything)


def answer(tool: str, data: Any) -> None:
    """Print the envelope around an answer."""
    _print({"version": VERSION, "success": True, "tool": tool, "data": data})


def refuse(tool: str, error: RalphError, **answered: Any) -> None:
    """Print the envelope around an error.

    Arguments:
        tool: the command.
        error: why it does not end with 0.
        answered: ``data``, where there is an answer all the same.

    """
    failure = {"code": error.code, "message": error.message, "hint": error.hint}
    _print({"version": VERSION, "success": False, "tool": tool, "error": failure, **answered})


def remark(message: str) -> None:
    """Say to a person what an empty answer means; programs see that it is empty."""
    if os.isatty(2):
        on_stderr(os.environ).event("answer.empty", message)


def _print(envelope: dict[str, Any]) -> None:
    sys.stdout.write(json_format.dumps(envelope) + "\n")


def complain(error: RalphError) -> None:
    """Say to a person what is wrong, and what mends it."""
    on_stderr(os.environ).error("error.raised", error.message, error.hint, code=error.code)
