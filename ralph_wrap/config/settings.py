"""What decides how a session runs, as one value."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Isolation(Enum):
    """Whether a session gets a worktree."""

    PREFER = "prefer"
    REQUIRE = "require"
    OFF = "off"


class OnDirty(Enum):
    """What happens to uncommitted work at the end."""

    WIP = "wip"
    KEEP = "keep"


class OnLeak(Enum):
    """What happens when something outside the workspace has changed during an iteration."""

    REPORT = "report"
    STOP = "stop"


class Ignore(Enum):
    """Where the rule that hides the worktrees goes."""

    GITIGNORE = "gitignore"
    EXCLUDE = "exclude"
    OFF = "off"


class Orphans(Enum):
    """What a start does for dead sessions."""

    SWEEP = "sweep"
    REPORT = "report"


class Submodules(Enum):
    """What becomes of a worktree's submodules."""

    OFF = "off"
    INIT = "init"


COMMANDS = ("setup", "check")
"""The keys of the file that are commands, or hold some, and run only if their user has approved them."""

_IN_WORKTREES_ALONE = {"setup", "check"}


class Manner(NamedTuple):
    """How an agent is dealt with.

    Attributes:
        prompt: how it takes the prompt: ``stdin``, or ``argument`` or ``file``, where its command has
            ``{prompt}`` or ``{prompt_file}``.
        output: the format of what it prints; ``text`` is none.
        env: environment variables that it gets besides.
        budget: more words for its command that cap what it may spend, ``{left}`` being US dollars.
        resume: more words for its command that take up an earlier session of its own, ``{session}``.

    """

    prompt: str = "stdin"
    output: str = "text"
    env: tuple[tuple[str, str], ...] = ()
    budget: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()


class AgentTable(NamedTuple):
    """What ``[agents.NAME]`` in the configuration file says; ``None`` is what it does not say.

    Attributes:
        command: the agent's command.
        prompt: see :class:`Manner`.
        output: the same.
        env: the same.

    """

    command: tuple[str, ...] | None = None
    prompt: str | None = None
    output: str | None = None
    env: tuple[tuple[str, str], ...] | None = None

    def stated(self) -> dict[str, Any]:
        """Return what it says, as JSON has it; all is approved: a variable can be as good as a command."""
        said = {key: value for key, value in self._asdict().items() if value is not None}
        return said | ({"env": dict(self.env)} if self.env is not None else {})


class Settings(NamedTuple):
    """Everything that decides how a session runs; times are seconds, 0 or ``None`` is no limit.

    Attributes:
        project: the directory that the session is for.
        command: the agent's command; ``command[0]`` as in ``execvp(3)``.
        agent: its name, for people and the record.
        manner: how it is dealt with.
        agents: what the configuration file says of agents, by name.
        raw: its output is passed on as it comes, not in readable form.
        prompt: text for the agent's standard input.
        prompt_file: read anew for each iteration, instead of *prompt*. Without either, the agent gets our
            standard input.
        max_iterations: end after so many iterations.
        max_failures: end after so many failing iterations in a row.
        max_stalls: end after so many iterations in a row that changed nothing.
        max_time: end after so long.
        max_tokens: end after the agent has reported so many, in the middle of an iteration, too.
        max_cost: the same in US dollars.
        iteration_timeout: cut an iteration short after so long.
        idle_timeout: cut an iteration short after so long without output.
        delay: wait between iterations.
        grace: between asking an agent to end and killing it.
        until: a line of the agent's answer that ends the loop; empty for none.
        preamble: the prompt begins with words on where the agent works and how that is reviewed.
        on_leak: what happens when something outside the workspace has changed during an iteration.
        isolation: whether a worktree is wanted.
        base: what a new branch starts from.
        branch: name of the branch; ``None`` is ``ralph/<id>``.
        sparse: directories, or files in them, that are checked out; empty for all.
        link: directories that are shared with the project by symlink.
        hooks: git hooks run in the agent's commits.
        on_dirty: what happens to uncommitted work.
        keep_worktree: never remove the worktree.
        drop_empty: delete the branch if the session left nothing at all.
        ignore: where the ignore rule goes.
        orphans: what the start does for dead sessions.
        copy: patterns of ignored files that the worktree gets a copy of.
        submodules: whether they are initialised in it.
        pool: how many warm worktrees are kept ready.
        push: the remote that the branch is pushed to after each iteration; ``None``: to none.
        commit_each: what an iteration leaves uncommitted is committed.
        pool_keep: ignored directories that a later worktree gets from an earlier one.
        setup: run once in the worktree, by ``sh -c``, before the first iteration; empty for nothing.
        setup_timeout: give up after so long.
        check: run by ``sh -c`` on what a branch and its target make together, before it lands.
        check_timeout: seconds until it counts as failed; 0: never.
        merge_on_complete: the branch that a session which kept its promise lands on; empty for none.
        main: the branch that others are held against; empty for what the main checkout is on.
        keep_dropped: so long a dropped branch can be brought back.
        resume: each iteration takes up the agent's own session of the one before.
        typed: how it was asked for: options and command, without the project and where its branch begins.
        background: nobody waits for it; its worktree stays, saved, until ``ralph-wrap rm``.

    """

    project: Path
    command: tuple[str, ...]
    agent: str = ""
    manner: Manner = Manner()
    agents: tuple[tuple[str, AgentTable], ...] = ()
    raw: bool = False
    prompt: str | None = None
    prompt_file: Path | None = None
    max_iterations: int = 100
    max_failures: int = 5
    max_stalls: int = 5
    max_time: float | None = None
    max_tokens: int = 0
    max_cost: float = 0.0
    iteration_timeout: float | None = None
    idle_timeout: float | None = None
    delay: float = 0.0
    grace: float = 5.0
    until: str = "<promise>COMPLETE</promise>"
    preamble: bool = False
    on_leak: OnLeak = OnLeak.REPORT
    isolation: Isolation = Isolation.PREFER
    base: str = "head"
    branch: str | None = None
    sparse: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    hooks: bool = False
    on_dirty: OnDirty = OnDirty.WIP
    keep_worktree: bool = False
    drop_empty: bool = False
    ignore: Ignore = Ignore.GITIGNORE
    orphans: Orphans = Orphans.SWEEP
    copy: tuple[str, ...] = ()
    submodules: Submodules = Submodules.OFF
    pool: int = 0
    pool_keep: tuple[str, ...] = ()
    push: str | None = None
    commit_each: bool = False
    setup: str = ""
    setup_timeout: float | None = 600.0
    check: str = ""
    check_timeout: float = 3600.0
    merge_on_complete: str = ""
    main: str = ""
    keep_dropped: float = 30 * 86400.0
    resume: bool = False
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
        without = _IN_WORKTREES_ALONE if self.isolation is Isolation.OFF else set()
        if not self.merge_on_complete:
            without = without | {"check"}
        others = {f"agents.{name}" for name, _ in self.agents if name != self.agent}
        return bool(self.commands.keys() - without - others)
