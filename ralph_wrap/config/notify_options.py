"""The options of notifications; see :mod:`ralph_wrap.config.options`."""

from __future__ import annotations

from ralph_wrap.config.parsers import COMMAND, EVENTS, FLAG
from ralph_wrap.config.table import KEY, Table, option

_FILE_ONLY = (KEY,)


class NotifySettings(Table, group="output"):
    """What tells a person that a session needs a look."""

    notify: str = option(
        default="",
        kind=COMMAND,
        help="Run this, by sh -c, at the end of each session, with its report on standard input.",
        sources=_FILE_ONLY,
    )
    notify_on: tuple[str, ...] = option(
        default=(),
        kind=EVENTS,
        help="Run notify at these events alone.",
        sources=_FILE_ONLY,
    )
    quiet_terminal: bool = option(
        default=False,
        kind=FLAG,
        help="Send no bell and no notification to the terminal at the end.",
        is_switch=True,
    )
