"""The table of options: each setting once, with its type, default, kind, help and possible sources.

Other modules make from it: the command line, the variables and the keys of ``.ralph/config.toml``. Their JSON
schema, the completion in a shell and the output of ``config show`` come from it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ralph_wrap.config.agent_options import AgentSettings
from ralph_wrap.config.file_options import CheckpointSettings, LandingSettings, PoolSettings, SetupSettings
from ralph_wrap.config.gate_options import GateSettings
from ralph_wrap.config.notify_options import NotifySettings
from ralph_wrap.config.parsers import (
    COUNT,
    DOLLARS,
    DURATION,
    FILE,
    FLAG,
    LOG_SIZE,
    PATHS,
    TEXT,
    choice,
)
from ralph_wrap.config.sandbox_options import SandboxSettings
from ralph_wrap.config.settings import (
    IgnoreLocation,
    Isolation,
    LogFormat,
    OnDirty,
    OnLeak,
    OnOrphans,
    SubmoduleMode,
)
from ralph_wrap.config.table import ENVIRONMENT, KEY, TYPED, Option, Table, option
from ralph_wrap.errors import UsageError

_FILE_ONLY = (KEY,)

CHECK_IS_GATE = "verify"
"""As the value of ``check``: what ``verify`` runs is also what has to pass before a branch lands."""


class LoopLimits(Table, group="loop"):
    """When the loop ends, and when an iteration of it."""

    max_iterations: int = option(
        default=100, kind=COUNT, help="End after N iterations; 0: no limit.", short="-n"
    )
    max_failures: int = option(default=5, kind=COUNT, help="Give up after N failing iterations in a row.")
    max_stalls: int = option(
        default=5, kind=COUNT, help="Give up after N iterations in a row that changed nothing."
    )
    max_time: float | None = option(
        default=None, kind=DURATION, help="End the loop after this time (90s, 15m, 2h)."
    )
    max_tokens: int = option(
        default=0, kind=COUNT, help="End after the agent has reported N tokens; 0: no limit."
    )
    max_cost: float = option(
        default=0.0,
        kind=DOLLARS,
        help="End after the agent has reported this cost; 0: no limit.",
    )
    iteration_timeout: float | None = option(
        default=None, kind=DURATION, help="End an iteration after this time."
    )
    idle_timeout: float | None = option(
        default=None,
        kind=DURATION,
        help="End an iteration after this time without output.",
    )
    delay: float = option(default=0.0, kind=DURATION, help="Wait this long between iterations.")
    grace: float = option(
        default=5.0, kind=DURATION, help="Time that the agent has to end before it is killed."
    )
    until: str = option(
        default="<promise>COMPLETE</promise>",
        kind=TEXT,
        help="The loop ends when the agent's final answer has this text on a line of its own.",
    )
    blocked: str = option(
        default="<promise>BLOCKED</promise>",
        kind=TEXT,
        help="The loop ends when the agent answers with this text and a question for you; the status is 75.",
    )


class WorktreeSettings(Table, group="worktree"):
    """Whether the session gets a worktree, what is in it, and what becomes of it.

    Attributes:
        background: the session has no terminal; its saved worktree stays until ``ralph-wrap rm``.
        resumes: id of the session that this one goes on from; empty if it begins anew.
        worktree_name: name of the worktree's directory; empty for the session id.
        takes_over: object id of the claim on the remote that the session takes over; ``*`` for any.
        agent_id: agent id of a new session; empty for a free one.
        patience: seconds for the last push to the remote; a second signal always ends it.
        patience_at_term: seconds for it if a SIGTERM ends the session: docker stop kills after 10 by default.
        task: token of the task that the session does in a batch; empty if there is none.

    """

    isolation: Isolation = option(
        default=Isolation.PREFER,
        kind=choice(Isolation),
        help="Whether the agent works in a worktree of its own, or in a private clone.",
    )
    base: str = option(
        default="head",
        kind=TEXT,
        help="Where the branch starts: head, any revision, or fresh (head with only its top-level files).",
        metavar="REF",
        needs_worktree=True,
    )
    branch: str | None = option(
        default=None,
        kind=TEXT,
        help="Create this branch, or continue it.",
        metavar="NAME",
        unset="ralph/<id>",
        needs_worktree=True,
    )
    sparse: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        help="Check out only this directory; can be repeated.",
        needs_worktree=True,
    )
    link: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        help="Share this directory with the project by symlink; can be repeated.",
        metavar="DIR",
        needs_worktree=True,
    )
    hooks: bool = option(default=False, kind=FLAG, help="Run git hooks in the agent's commits.")
    on_leak: OnLeak = option(
        default=OnLeak.REPORT,
        kind=choice(OnLeak),
        help="What to do when something outside the worktree changed during an iteration.",
        needs_worktree=True,
    )
    on_dirty: OnDirty = option(
        default=OnDirty.WIP,
        kind=choice(OnDirty),
        help="Save uncommitted work and remove the worktree, or keep the worktree.",
        needs_worktree=True,
    )
    keep_worktree: bool = option(
        default=False,
        kind=FLAG,
        help="Keep the worktree.",
        is_switch=True,
        needs_worktree=True,
        variable="RALPH_KEEP_WORKTREES",
    )
    drop_empty: bool = option(
        default=False,
        kind=FLAG,
        help="Delete the branch if the session has no commits and no saved work.",
        is_switch=True,
        needs_worktree=True,
    )
    ignore: IgnoreLocation = option(
        default=IgnoreLocation.GITIGNORE,
        kind=choice(IgnoreLocation),
        help="Where to write the ignore rule .ralph/worktrees/.",
        needs_worktree=True,
    )
    orphans: OnOrphans = option(
        default=OnOrphans.SWEEP,
        kind=choice(OnOrphans),
        help="What a start does with dead sessions: finish them, or only report them.",
        sources=_FILE_ONLY,
    )
    copy: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        help="Patterns of ignored files to copy into the worktree.",
        sources=_FILE_ONLY,
    )
    submodules: SubmoduleMode = option(
        default=SubmoduleMode.OFF,
        kind=choice(SubmoduleMode),
        help="Whether to initialise submodules in the worktree.",
        sources=_FILE_ONLY,
    )
    background: bool = False
    resumes: str = ""
    worktree_name: str = ""
    takes_over: str = ""
    agent_id: str = ""
    patience: float = 30.0
    patience_at_term: float = 5.0
    task: str = ""


class OutputSettings(Table, group="output"):
    """What ralph-wrap itself prints."""

    log_format: LogFormat = option(
        default=LogFormat.TEXT,
        kind=choice(LogFormat),
        help="Print the messages on stderr as text, or as one JSON object per line.",
    )
    max_output: int = option(
        default=200 * 10**6,
        kind=LOG_SIZE,
        help="Keep the beginning and the end of an output.log that is longer than this; 0: no limit.",
        sources=_FILE_ONLY,
    )


class Settings(
    NotifySettings,
    OutputSettings,
    LandingSettings,
    PoolSettings,
    SetupSettings,
    SandboxSettings,
    WorktreeSettings,
    CheckpointSettings,
    GateSettings,
    LoopLimits,
    AgentSettings,
):
    """Everything that decides how a session runs. Times are seconds; 0 or ``None`` means no limit.

    A function takes the group that it needs; each :class:`Settings` is a value of every group. As in a
    dataclass, the fields of the last group come first.

    Attributes:
        given: the text of each option outside of the file; ``None`` if a program has made the settings.
        stated: what the project decides beyond limits, by key; ``trust`` knows what of it is approved.
        replaced: the settings that another source than the project gives.

    """

    given: tuple[tuple[str, str], ...] | None = None
    stated: Mapping[str, Any] = MappingProxyType({})
    replaced: frozenset[str] = frozenset()

    @property
    def landing_check(self) -> str:
        """What runs before a branch lands: the ``check``, which may say that it is the gate.

        Raises:
            UsageError: there is no gate.

        """
        if self.check.strip() != CHECK_IS_GATE:
            return self.check
        if not self.verify:
            raise UsageError('check = "verify": the key verify is missing', 'verify = "make test"')
        return self.verify


PROJECT = Option(
    None,
    FILE,
    "The directory of the project.",
    name="project",
    sources=(TYPED, ENVIRONMENT),
    short="-C",
    metavar="DIR",
)
JOB = Option(
    None, FILE, "A file with a JSON job; - is standard input.", name="job", sources=(TYPED, ENVIRONMENT)
)
STOP_TIMEOUT = Option(
    None,
    DURATION,
    "Time that the sessions have to end; must be shorter than docker's.",
    name="stop_timeout",
    sources=(ENVIRONMENT,),
)
"""An option of ``ralph-wrap init``, which reads it without this table."""

INIT_RESUME = Option(
    None,
    FLAG,
    "Go on in the background with the sessions that the last end of this container interrupted.",
    name="init_resume",
    sources=(ENVIRONMENT,),
)
"""An option of ``ralph-wrap init``, as above."""

BATCH_ROWS = (
    Option(1, COUNT, "Run at most N sessions at once.", name="jobs", sources=(TYPED,), short="-j"),
    Option(
        0.0,
        DOLLARS,
        "End all sessions after they have reported this cost; running iterations can exceed it; 0: no limit.",
        name="batch_max_cost",
        sources=(TYPED,),
    ),
    Option(None, DURATION, "End all sessions after this time.", name="batch_max_time", sources=(TYPED,)),
)
"""The options that ``ralph-wrap batch`` has beside those of ``run``."""

FLEET_MAX_COST = Option(
    0.0,
    DOLLARS,
    "Divide this cost by the number of sessions: each ends after it has reported its share; 0: no limit.",
    name="fleet_max_cost",
    sources=(TYPED,),
)
"""The option of ``ralph-wrap fleet run`` that limits all sessions together."""

ROWS = {row.name: row for row in (PROJECT, *Settings.options, JOB, STOP_TIMEOUT, INIT_RESUME)}
"""The whole table, by name. A job stands for several settings, and the project decides where they are."""
