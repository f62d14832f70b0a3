"""The options of the gate; see :mod:`ralph_wrap.config.options`."""

from __future__ import annotations

from ralph_wrap.config.parsers import COMMANDS, DURATION, FLAG
from ralph_wrap.config.table import Table, option


class GateSettings(Table, group="loop"):
    """What proves that the work is done."""

    verify: str = option(
        default="",
        kind=COMMANDS,
        help="The promise counts only if this command, run by sh -c in the workspace, ends with status 0.",
    )
    verify_each: bool = option(
        default=False,
        kind=FLAG,
        help="Run the --verify command also after each iteration that changed something.",
        is_switch=True,
    )
    verify_timeout: float | None = option(
        default=900.0,
        kind=DURATION,
        help="The --verify command fails after this time; 0: no limit.",
    )
