"""What decides how a session runs, as one value."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

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


class Ignore(Enum):
    """Where the rule that hides the worktrees goes."""

    GITIGNORE = "gitignore"
    EXCLUDE = "exclude"
    OFF = "off"


class Orphans(Enum):
    """What a start does for dead sessions."""

    SWEEP = "sweep"
    REPORT = "report"


class Settings(NamedTuple):
    """Everything that decides how a session runs; times are seconds, 0 or ``None`` is no limit.

    Attributes:
        project: the directory that the session is for.
        command: the agent's command; ``command[0]`` as in ``execvp(3)``.
        agent: its name, for people and the record.
        prompt: text for the agent's standard input.
        prompt_file: read anew for each iteration, instead of *prompt*. Without either, the agent gets our
            standard input.
        max_iterations: end after so many iterations.
        max_failures: end after so many failing iterations in a row.
        max_stalls: end after so many iterations in a row that changed nothing.
        max_time: end after so long.
        iteration_timeout: cut an iteration short after so long.
        idle_timeout: cut an iteration short after so long without output.
        delay: wait between iterations.
        grace: between asking an agent to end and killing it.
        until: a line of the agent's answer that ends the loop; empty for none.
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
        background: nobody waits for it; its worktree stays, saved, until ``ralph-wrap rm``.

    """

    project: Path
    command: tuple[str, ...]
    agent: str = ""
    prompt: str | None = None
    prompt_file: Path | None = None
    max_iterations: int = 100
    max_failures: int = 5
    max_stalls: int = 5
    max_time: float | None = None
    iteration_timeout: float | None = None
    idle_timeout: float | None = None
    delay: float = 0.0
    grace: float = 5.0
    until: str = "<promise>COMPLETE</promise>"
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
    background: bool = False
