"""The one place where an error becomes words and an exit status."""

from __future__ import annotations

import json as json_format
import os
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ralph_wrap.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
"""Of the JSON envelope."""


@contextmanager
def boundary(tool: str, *, json: bool) -> Iterator[None]:
    """Turn an error into a message on stderr, or the envelope on stdout, and its exit status.

    Arguments:
        tool: the command, for the envelope.
        json: whether its answer is JSON.

    """
    try:
        yield
    except RalphError as error:
        if json:
            failure = {"code": error.code, "message": error.message, "hint": error.hint}
            _print({"version": VERSION, "success": False, "tool": tool, "error": failure})
        else:
            _complain(error)
        raise typer.Exit(error.exit_code) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:  # noqa: BLE001 -- a bug: its status must not look like an agent's
        _complain(RalphError(f"ralph-wrap failed: {error!r}", "please report this, with the traceback below"))
        traceback.print_exc()
        raise typer.Exit(RalphError.exit_code) from None


def answer(tool: str, data: Any) -> None:
    """Print the envelope around an answer."""
    _print({"version": VERSION, "success": True, "tool": tool, "data": data})


def _print(envelope: dict[str, Any]) -> None:
    sys.stdout.write(json_format.dumps(envelope) + "\n")


def _complain(error: RalphError) -> None:
    from ralph_wrap.log import on_stderr  # noqa: PLC0415 -- slow, and only needed when something went wrong

    on_stderr(os.environ).error("error.raised", error.message, error.hint, code=error.code)
