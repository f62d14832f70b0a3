"""The tools: their descriptions for an agent, and what they call. The protocol is elsewhere.

The tools are ``ralph-wrap worktree enter``, ``exit`` and ``status``, with the same answers and errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, NamedTuple, cast

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from ralph_wrap.commands.worktree.enter import (
    EnteredWorktree,
    ExitAction,
    ExitedWorktree,
    enter,
    entered,
    leave,
)
from ralph_wrap.commands.worktree.status import WorktreeStatus, status
from ralph_wrap.config import load
from ralph_wrap.config.trust import require
from ralph_wrap.errors import RalphError
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import get_logger, lines_of, one_line, traceback_of
from ralph_wrap.worktree.managed.find import find

log = get_logger()

ENTER = (
    "Make a git worktree of this project to work in until exit_worktree: the directory"
    " .ralph/worktrees/NAME on the new branch ralph/NAME, which starts at HEAD. Uncommitted work"
    " stays where it is. The answer has the path. No tool can change the working directory of an agent,"
    " so work at that path from then on. Only one at a time. Call it when the user asks for a worktree."
)
EXIT = (
    "Exit the worktree that enter_worktree has made in this session; continue in the directory"
    " originalCwd of the answer. It never touches a worktree that a user or another session made,"
    " earlier sessions included. If this session has entered no worktree, it is a no-op: it says so, and"
    " changes nothing. Call it only when the user asks to leave, or to end, the worktree. remove ends"
    " its tmux session, keep leaves it: the answer names it. Then you can enter another worktree."
)
STATUS = (
    "Report whether you work in a linked git worktree, with its path, its branch, and the path of the"
    " main checkout. This is the worktree that this session has entered, else the one of the directory"
    " for which the server was started. Changes nothing."
)
# The descriptions follow those of the documented enter/exit pair.

_Name = Annotated[
    str,
    Field(description="Name of the worktree: letters, digits, '-', '_' and single '.', no '/'."),
]
_Tmux = Annotated[
    bool, Field(strict=True, description="Start a detached tmux session in it; the answer names it.")
]
_Action = Annotated[
    Literal["keep", "remove"],
    Field(
        description="keep: leave directory and branch as they are, for later. remove: delete"
        " both, once the work is merged or abandoned."
    ),
]
_Discard = Annotated[
    bool,
    Field(
        strict=True,  # "yes" and 1 are no consent
        description="Only for remove, which refuses, and lists what would be lost, while there are"
        " uncommitted files or commits that the original branch lacks. Show this list to the user,"
        " and set this only if the user agrees to lose all of it.",
    ),
]

_EXIT = re.compile(
    r"ralph-wrap worktree exit --action (?P<action>\w+)(?P<discards> --discard-changes)?"
    r"(?: --session (?:'[^\n]*'|\S+))?"
)
"""The command in a hint that a tool call replaces for an agent, which cannot run commands of ralph-wrap."""


class ToolCaller(NamedTuple):
    """The client of the server.

    Attributes:
        directory: the absolute path of the project.
        cwd: the directory from which the agent enters worktrees.
        session: the session that enters and exits.
        environ: the server's environment.

    """

    directory: Path
    cwd: Path
    session: str
    environ: Mapping[str, str]


class WorktreeTools:
    """The tools of one client.

    Attributes:
        busy: is held while a call runs. So two calls cannot enter two worktrees.

    """

    def __init__(self, caller: ToolCaller) -> None:
        self.busy = Lock()
        self._caller = caller

    def enter_worktree(self, name: _Name, tmux: _Tmux = False) -> EnteredWorktree:
        """See :data:`ENTER`."""
        caller = self._caller
        with self._call("enter_worktree") as project:
            settings = load(caller.directory, project.main, caller.cwd, {}, caller.environ, ())
            require(project.main, settings.stated, caller.environ, lambda key: key in {"ignore", "copy"})
            made = enter(
                project,
                name,
                session=caller.session,
                cwd=caller.cwd,
                ignore=settings.ignore,
                copy=settings.copy,
                in_tmux=tmux,
            )
            return replace(made, **_in_utf_8(vars(made)))

    def exit_worktree(self, action: _Action, discard_changes: _Discard = False) -> ExitedWorktree:
        """See :data:`EXIT`."""
        with self._call("exit_worktree") as project:
            left = leave(
                project, ExitAction(action), session=self._caller.session, discard_changes=discard_changes
            )
            return replace(left, **_in_utf_8(vars(left)))

    def worktree_status(self) -> WorktreeStatus:
        """See :data:`STATUS`."""
        with self._call("worktree_status") as project:
            inside = self._inside(project)
            shown = status(find_project(inside, self._caller.environ) if inside else project)
            return cast("WorktreeStatus", _in_utf_8(shown))

    def _inside(self, project: Project) -> Path | None:
        if project.repository is not None:
            with contextlib.suppress(RalphError, OSError):  # another process removes it at this moment
                if current := entered(project, project.repository, self._caller.session):
                    return find(project.repository.common_dir, current[0])[0].path
        return None

    @contextlib.contextmanager
    def _call(self, tool: str) -> Iterator[Project]:
        """Give a call its project, once no other call runs. An error is for the agent."""
        with self.busy:
            try:
                yield find_project(self._caller.directory, self._caller.environ)
            except RalphError as error:
                raise ToolError(_for_agent(error)) from error
            except Exception as error:  # after a bug or a disk error the next call may work
                failure = RalphError(
                    f"ralph-wrap failed: {error!r}", "please report this with the output on stderr"
                )
                log.error("tool.failed", failure.message, tool=tool, traceback=traceback_of(error))
                raise ToolError(_for_agent(failure)) from error


def _for_agent(error: RalphError) -> str:
    """Return the text of an error; the commands in its hint are calls of the tools."""
    # A file name can hold any character, also a newline.
    hint = [one_line(f"hint: {_EXIT.sub(_as_call, line)}") for line in lines_of(error.hint) if line]
    return "\n".join([one_line(f"{error.code}: {error.message}"), *hint])


def _as_call(command: re.Match[str]) -> str:
    also = ", discard_changes: true" if command["discards"] else ""
    return f'exit_worktree with action "{command["action"]}"{also}'


def _in_utf_8(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields that can be written as UTF-8: the names of files are bytes, which may not be."""
    return {
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in fields.items()
    }
