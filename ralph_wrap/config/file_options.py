"""The options that mostly the configuration file has; see :mod:`ralph_wrap.config.options`."""

from __future__ import annotations

from ralph_wrap.config.parsers import BEAT, BRANCH, COMMAND, COUNT, DURATION, FLAG, PLACES, TEXT
from ralph_wrap.config.table import KEY, Table, option

_FILE_ONLY = (KEY,)


class CheckpointSettings(Table, group="loop"):
    """What happens to the work of an iteration at its end."""

    commit_each: bool = option(
        default=False,
        kind=FLAG,
        help="Commit after each iteration what the agent left uncommitted.",
        sources=_FILE_ONLY,
    )
    push: str | None = option(
        default=None,
        kind=TEXT,
        help="Push the branch to this remote after each iteration.",
        metavar="REMOTE",
        sources=_FILE_ONLY,
    )
    remote: str | None = option(
        default=None,
        kind=TEXT,
        help="Mirror the session to this remote, so that it can go on on another machine.",
        metavar="NAME",
        needs_worktree=True,
    )
    remote_beat: float = option(
        default=30.0,
        kind=BEAT,
        help="Longest time between two pushes to the remote while an iteration runs; at most 10m.",
        sources=_FILE_ONLY,
    )


class SetupSettings(Table, group="worktree"):
    """What prepares a worktree before its first iteration, and what takes that back at its end."""

    setup: str = option(
        default="",
        kind=COMMAND,
        help="Run this once in the worktree, by sh -c, before the first iteration.",
        sources=_FILE_ONLY,
    )
    setup_timeout: float | None = option(
        default=600.0,
        kind=DURATION,
        help="End the setup command after this time; 0: no limit.",
        sources=_FILE_ONLY,
    )
    teardown: str = option(
        default="",
        kind=COMMAND,
        help="Run this in the worktree, by sh -c, before it is saved and removed.",
        sources=_FILE_ONLY,
    )
    teardown_timeout: float | None = option(
        default=60.0,
        kind=DURATION,
        help="End the teardown command after this time; 0: no limit.",
        sources=_FILE_ONLY,
    )


class PoolSettings(Table, group="pool"):
    """The worktrees that are made in advance."""

    pool: int = option(
        default=0,
        kind=COUNT,
        help="Keep N worktrees checked out in advance.",
        sources=_FILE_ONLY,
    )
    pool_keep: tuple[str, ...] = option(
        default=(),
        kind=PLACES,
        help="Ignored directories to move from a finished worktree to a warm one.",
        sources=_FILE_ONLY,
    )


class LandingSettings(Table, group="landing"):
    """How branches are compared, and how they land."""

    check: str = option(
        default="",
        kind=COMMAND,
        help="Run this, by sh -c, on the merged files before a branch lands.",
        sources=_FILE_ONLY,
    )
    check_timeout: float = option(
        default=3600.0,
        kind=DURATION,
        help="The check fails after this time; 0: no limit.",
        sources=_FILE_ONLY,
    )
    merge_on_complete: str = option(
        default="",
        kind=BRANCH,
        help="Merge the session's branch into this one after the agent has kept its promise.",
        sources=_FILE_ONLY,
    )
    main: str = option(
        default="",
        kind=TEXT,
        help="The branch that the other branches are compared with.",
        metavar="BRANCH",
        unset="the branch of the main checkout",
        sources=_FILE_ONLY,
    )
    keep_dropped: float = option(
        default=30 * 86400.0,
        kind=DURATION,
        help="How long ralph-wrap restore can bring back a dropped branch.",
        sources=_FILE_ONLY,
    )
    keep_sessions: float = option(
        default=30 * 86400.0,
        kind=DURATION,
        help="How long the records and logs of a finished session stay, if its work has landed; 0: for ever.",
        sources=_FILE_ONLY,
    )
