"""The question before a command deletes everything of a kind."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ralph_wrap.errors import RefusedError, UsageError
from ralph_wrap.interfaces.cli.approval_prompt import can_ask, confirm
from ralph_wrap.system.log import one_line


def require_consent(title: str, rows: Sequence[str], question: str, again: str, *, yes: bool) -> None:
    """Name what would be deleted, and ask on the terminal whether that is wanted.

    Arguments:
        title: what happens to the rows.
        rows: one for each thing.
        question: with a question mark.
        again: the command that asks no question.
        yes: the user has said yes already; the rows are not shown.

    Raises:
        UsageError: there is no terminal to ask on.
        RefusedError: the answer is no.

    """
    if yes:
        return
    lines = [f"ralph-wrap: {title}", *(f"  {one_line(row)}" for row in rows)]
    if not can_ask():
        os.write(2, "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
        raise UsageError("nothing was deleted, because there is no terminal to ask on", again)
    if not confirm(lines, question, None):
        raise RefusedError("nothing was deleted, because you did not say yes", f"without a question: {again}")
