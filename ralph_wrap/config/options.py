"""The table of options: every setting once, with its type, default, kind, help, and where it may stand.

Made from it are the command line (Typer's and the fast parser's), the variables, the keys of
``.ralph/config.toml``, their JSON schema, the completion in a shell, and what ``config show`` prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralph_wrap.config.parsers import (
    AGENTS,
    BRANCH,
    COMMAND,
    COUNT,
    DOLLARS,
    DURATION,
    FILE,
    FLAG,
    PATHS,
    PLACES,
    TEXT,
    choice,
)
from ralph_wrap.config.settings import (
    AgentInvocation,
    AgentTable,
    IgnoreLocation,
    Isolation,
    OnDirty,
    OnLeak,
    OnOrphans,
    SubmoduleMode,
)
from ralph_wrap.config.table import ENVIRONMENT, KEY, TYPED, Option, Table, option

_AGENT, _LOOP, _WORKTREE, _POOL, _LANDING = "agent", "loop", "worktree", "pool", "landing"
_FILE_ONLY = (KEY,)


class Settings(Table):
    """Everything that decides how a session runs; times are seconds, 0 or ``None`` is no limit.

    Attributes:
        project: the directory that the session is for.
        command: the agent's command; ``command[0]`` as in ``execvp(3)``.
        invocation: how the agent is dealt with.
        typed: how the session was asked for: options and command, without the project and where its branch
            begins.
        background: the session has no terminal; its worktree stays, saved, until ``ralph-wrap rm``.

    """

    project: Path
    command: tuple[str, ...]
    agent: str = option(
        default="",
        kind=TEXT,
        group=_AGENT,
        help="aider, claude, codex, gemini, opencode, or a configured one.",
        short="-a",
        metavar="NAME",
    )
    prompt: str | None = option(
        default=None,
        kind=TEXT,
        group=_AGENT,
        help="What each iteration is given on stdin.",
        short="-p",
    )
    prompt_file: Path | None = option(
        default=None,
        kind=FILE,
        group=_AGENT,
        help="The same, read anew each time.",
        short="-f",
        unset="PROMPT.md if there",
    )
    max_iterations: int = option(
        default=100, kind=COUNT, group=_LOOP, help="End after N; 0: no limit.", short="-n"
    )
    max_failures: int = option(
        default=5, kind=COUNT, group=_LOOP, help="Give up after N failing iterations in a row."
    )
    max_stalls: int = option(
        default=5, kind=COUNT, group=_LOOP, help="Give up after N iterations in a row that changed nothing."
    )
    max_time: float | None = option(
        default=None, kind=DURATION, group=_LOOP, help="End the loop after this (90s, 15m, 2h)."
    )
    max_tokens: int = option(
        default=0, kind=COUNT, group=_LOOP, help="End after the agent has reported N tokens; 0: no limit."
    )
    max_cost: float = option(
        default=0.0, kind=DOLLARS, group=_LOOP, help="End after it has reported this cost; 0: no limit."
    )
    iteration_timeout: float | None = option(
        default=None, kind=DURATION, group=_LOOP, help="Cut an iteration short after this."
    )
    idle_timeout: float | None = option(
        default=None,
        kind=DURATION,
        group=_LOOP,
        help="Cut an iteration short after this time without output.",
    )
    delay: float = option(default=0.0, kind=DURATION, group=_LOOP, help="Wait between iterations.")
    grace: float = option(
        default=5.0, kind=DURATION, group=_LOOP, help="Between asking the agent to end and killing it."
    )
    until: str = option(
        default="<promise>COMPLETE</promise>",
        kind=TEXT,
        group=_LOOP,
        help="A line of the agent's answer that ends the loop.",
    )
    preamble: bool = option(
        default=False, kind=FLAG, group=_AGENT, help="Tell the agent where it works, before the prompt."
    )
    raw: bool = option(
        default=False,
        kind=FLAG,
        group=_AGENT,
        help="Print the agent's machine-readable stream as it comes.",
        is_switch=True,
    )
    isolation: Isolation = option(
        default=Isolation.PREFER,
        kind=choice(Isolation),
        group=_WORKTREE,
        help="Whether to work in a worktree.",
    )
    base: str = option(
        default="head",
        kind=TEXT,
        group=_WORKTREE,
        help="Where the branch starts: head, any revision, or fresh (head, near-empty).",
        metavar="REF",
        needs_worktree=True,
    )
    branch: str | None = option(
        default=None,
        kind=TEXT,
        group=_WORKTREE,
        help="Make or continue this branch.",
        metavar="NAME",
        unset="ralph/<id>",
        needs_worktree=True,
    )
    sparse: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        group=_WORKTREE,
        help="Check out this directory only; may be given several times.",
        needs_worktree=True,
    )
    link: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        group=_WORKTREE,
        help="Share this directory by symlink; may be given several times.",
        metavar="DIR",
        needs_worktree=True,
    )
    hooks: bool = option(
        default=False, kind=FLAG, group=_WORKTREE, help="Run git hooks in the agent's commits."
    )
    on_leak: OnLeak = option(
        default=OnLeak.REPORT,
        kind=choice(OnLeak),
        group=_WORKTREE,
        help="When an iteration changed something outside the worktree.",
        needs_worktree=True,
    )
    on_dirty: OnDirty = option(
        default=OnDirty.WIP,
        kind=choice(OnDirty),
        group=_WORKTREE,
        help="Save uncommitted work, or leave the worktree.",
        needs_worktree=True,
    )
    keep_worktree: bool = option(
        default=False,
        kind=FLAG,
        group=_WORKTREE,
        help="Leave the worktree.",
        is_switch=True,
        needs_worktree=True,
        variable="RALPH_KEEP_WORKTREES",
    )
    drop_empty: bool = option(
        default=False,
        kind=FLAG,
        group=_WORKTREE,
        help="Delete the branch if nothing came of the session.",
        is_switch=True,
        needs_worktree=True,
    )
    ignore: IgnoreLocation = option(
        default=IgnoreLocation.GITIGNORE,
        kind=choice(IgnoreLocation),
        group=_WORKTREE,
        help="Where the rule .ralph/worktrees/ goes.",
        needs_worktree=True,
    )
    orphans: OnOrphans = option(
        default=OnOrphans.SWEEP,
        kind=choice(OnOrphans),
        group=_WORKTREE,
        help="What a start does with dead sessions: finish them, or only name them.",
        where=_FILE_ONLY,
    )
    copy: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        group=_WORKTREE,
        help="Patterns of ignored files that the worktree gets a copy of.",
        where=_FILE_ONLY,
    )
    submodules: SubmoduleMode = option(
        default=SubmoduleMode.OFF,
        kind=choice(SubmoduleMode),
        group=_WORKTREE,
        help="Whether submodules are initialised in the worktree.",
        where=_FILE_ONLY,
    )
    pool: int = option(
        default=0,
        kind=COUNT,
        group=_POOL,
        help="Keep N worktrees checked out beforehand.",
        where=_FILE_ONLY,
    )
    pool_keep: tuple[str, ...] = option(
        default=(),
        kind=PLACES,
        group=_POOL,
        help="Ignored directories that a later worktree gets from an earlier one.",
        where=_FILE_ONLY,
    )
    commit_each: bool = option(
        default=False,
        kind=FLAG,
        group=_LOOP,
        help="Commit what an iteration leaves uncommitted.",
        where=_FILE_ONLY,
    )
    push: str | None = option(
        default=None,
        kind=TEXT,
        group=_LOOP,
        help="Push the branch to this remote after each iteration.",
        metavar="REMOTE",
        where=_FILE_ONLY,
    )
    setup: str = option(
        default="",
        kind=COMMAND,
        group=_WORKTREE,
        help="Run this once in the worktree, by sh -c, before the first iteration.",
        where=_FILE_ONLY,
    )
    setup_timeout: float | None = option(
        default=600.0,
        kind=DURATION,
        group=_WORKTREE,
        help="Give up the setup after this; 0: no limit.",
        where=_FILE_ONLY,
    )
    check: str = option(
        default="",
        kind=COMMAND,
        group=_LANDING,
        help="Run this, by sh -c, on the merged files before a branch lands.",
        where=_FILE_ONLY,
    )
    check_timeout: float = option(
        default=3600.0,
        kind=DURATION,
        group=_LANDING,
        help="Let the check fail after this; 0: no limit.",
        where=_FILE_ONLY,
    )
    merge_on_complete: str = option(
        default="",
        kind=BRANCH,
        group=_LANDING,
        help="Land on this branch once the agent has kept its promise.",
        where=_FILE_ONLY,
    )
    main: str = option(
        default="",
        kind=TEXT,
        group=_LANDING,
        help="The branch that others are compared with.",
        metavar="BRANCH",
        unset="what the main checkout is on",
        where=_FILE_ONLY,
    )
    keep_dropped: float = option(
        default=30 * 86400.0,
        kind=DURATION,
        group=_LANDING,
        help="How long a dropped branch can be restored.",
        where=_FILE_ONLY,
    )
    resume: bool = option(
        default=False,
        kind=FLAG,
        group=_AGENT,
        help="Go on with the agent's own session of the iteration before.",
        where=_FILE_ONLY,
    )
    agents: tuple[tuple[str, AgentTable], ...] = option(
        default=(),
        kind=AGENTS,
        group=_AGENT,
        help="Agents that are added, or changed, by name.",
        where=_FILE_ONLY,
    )
    invocation: AgentInvocation = AgentInvocation()
    typed: tuple[str, ...] | None = None
    background: bool = False

    @property
    def commands(self) -> dict[str, Any]:
        """What of it is a command of the configuration file, by key: what is approved, or not (``trust``)."""
        given = {key: value for key in COMMANDS if (value := getattr(self, key))}
        return given | {f"agents.{name}": table.stated() for name, table in self.agents}

    @property
    def runs_commands(self) -> bool:
        """Whether one of them may be run; without isolation there is no worktree to set up."""
        without = {*COMMANDS} if self.isolation is Isolation.OFF else set()
        if not self.merge_on_complete:
            without.add("check")
        others = {f"agents.{name}" for name, _ in self.agents if name != self.agent}
        return bool(self.commands.keys() - without - others)


PROJECT = Option(
    None,
    FILE,
    "",
    "The project.",
    name="project",
    where=(TYPED, ENVIRONMENT),
    short="-C",
    metavar="DIR",
)
JOB = Option(None, FILE, "", "A JSON job; - is standard input.", name="job", where=(TYPED, ENVIRONMENT))
STOP_TIMEOUT = Option(
    None,
    DURATION,
    "",
    "Wait so long for the sessions to end; less than docker waits.",
    name="stop_timeout",
    where=(ENVIRONMENT,),
)
"""Of ``ralph-wrap init``, which reads it itself."""

ROWS = {row.name: row for row in (PROJECT, *Settings.options, JOB, STOP_TIMEOUT)}
"""The whole table, by name; what is no setting stands for several, or decides where those are."""

COMMANDS = tuple(row.name for row in Settings.options if row.kind is COMMAND)
"""The keys of the file that are commands, and run only if their user has approved them."""
