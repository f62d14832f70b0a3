"""The tools: their descriptions for an agent, and the functions that they call. The protocol is elsewhere.

The tools are ``ralph-wrap worktree enter``, ``exit`` and ``status``, with the same answers and errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ralph_wrap.commands.worktree.enter import (
    EnteredWorktree,
    ExitAction,
    ExitedWorktree,
    enter,
    entered,
    leave,
)
from ralph_wrap.commands.worktree.status import status
from ralph_wrap.config import load
from ralph_wrap.config.trust import require
from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import Commands, lines_of
from ralph_wrap.worktree.managed.find import find

_TYPES: dict[Any, Any] = {str: "string", bool: "boolean", str | None: ["string", "null"]}
"""The JSON Schema names of Python types."""

_KINDS: dict[str, type] = {"string": str, "boolean": bool}
"""The Python types of arguments, by their JSON Schema names."""

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


class McpTool(NamedTuple):
    """One tool.

    Attributes:
        name: its name in the protocol.
        description: its description for the agent.
        arguments: JSON Schemas by name; an argument without a default is required.
        answer: JSON Schema of the answer.
        call: the function that does the work.
        reads: it changes nothing.

    """

    name: str
    description: str
    arguments: Mapping[str, Mapping[str, Any]]
    answer: Mapping[str, Any]
    call: Callable[..., dict[str, Any]]
    reads: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of all arguments."""
        required = [name for name, kind in self.arguments.items() if "default" not in kind]
        return _object(self.arguments, required)


def answer(tool: McpTool, caller: ToolCaller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call a tool and return its answer, in strings that can be written as UTF-8.

    Arguments:
        arguments: the arguments that the client sent.

    Raises:
        RalphError: the tool refused or failed; the hint is for an agent.

    """
    try:
        fields = tool.call(
            caller, find_project(caller.directory, caller.environ), **_checked(tool, arguments)
        )
    except RalphError as error:
        error.hint = Commands.of(*(_EXIT.sub(_as_call, line) for line in lines_of(error.hint)))
        raise
    return {
        # File names are bytes, which may not be UTF-8.
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _as_call(command: re.Match[str]) -> str:
    also = ", discard_changes: true" if command["discards"] else ""
    return f'exit_worktree with action "{command["action"]}"{also}'


def _checked(tool: McpTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a tool; a wrong name or type is an error and never means the default."""
    kinds = {name: "|".join(kind.get("enum", [kind["type"]])) for name, kind in tool.arguments.items()}
    hint = f"arguments: {', '.join(f'{name}: {kind}' for name, kind in kinds.items()) or 'none'}"
    for name in arguments:
        if name not in tool.arguments:
            raise UsageError(f"{tool.name} has no argument {name!r}", hint)
    for name in tool.schema["required"]:
        if name not in arguments:
            raise UsageError(f"{tool.name} lacks the argument {name!r}", hint)
    for name, value in arguments.items():
        kind = tool.arguments[name]
        if (
            not isinstance(value, _KINDS[kind["type"]])
            or value not in kind.get("enum", [value])
            or (isinstance(value, str) and not value.isprintable())  # NUL for example: no file name has it
        ):
            raise UsageError(f"{tool.name}: {name} cannot be {value!r}", hint)
    defaults = {name: kind["default"] for name, kind in tool.arguments.items() if "default" in kind}
    return {**defaults, **arguments}


def _enter(caller: ToolCaller, project: Project, *, name: str, tmux: bool) -> dict[str, Any]:
    settings = load(caller.directory, project.main, caller.cwd, {}, caller.environ, ())
    require(project.main, settings.stated, caller.environ, lambda key: key in {"ignore", "copy"})
    return enter(
        project,
        name,
        session=caller.session,
        cwd=caller.cwd,
        ignore=settings.ignore,
        copy=settings.copy,
        in_tmux=tmux,
    )._asdict()


def _exit(caller: ToolCaller, project: Project, *, action: str, discard_changes: bool) -> dict[str, Any]:
    return leave(
        project,
        ExitAction(action),
        session=caller.session,
        discard_changes=discard_changes,
    )._asdict()


def _status(caller: ToolCaller, project: Project) -> dict[str, Any]:
    inside = _inside(caller, project)
    return status(find_project(inside, caller.environ) if inside else project)


def _inside(caller: ToolCaller, project: Project) -> Path | None:
    if project.repository is not None:
        with contextlib.suppress(RalphError, OSError):  # another process removes it at this moment
            if current := entered(project, project.repository, caller.session):
                return find(project.repository.common_dir, current[0])[0].path
    return None


def _object(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties},
        "required": required,
        "additionalProperties": False,
    }


def _all_of(fields: type) -> dict[str, Any]:
    kinds = get_type_hints(fields)
    return _object({name: {"type": _TYPES[kind]} for name, kind in kinds.items()}, [*kinds])


TOOLS = (
    McpTool(
        "enter_worktree",
        "Make a git worktree of this project to work in until exit_worktree: the directory"
        " .ralph/worktrees/NAME on the new branch ralph/NAME, which starts at HEAD. Uncommitted work"
        " stays where it is. The answer has the path. No tool can change the working directory of an agent,"
        " so work at that path from then on. Only one at a time. Call it when the user asks for a worktree.",
        {
            "name": {
                "type": "string",
                "description": "Name of the worktree: letters, digits, '-', '_' and single '.', no '/'.",
            },
            "tmux": {
                "type": "boolean",
                "default": False,
                "description": "Start a detached tmux session in it; the answer names it.",
            },
        },
        _all_of(EnteredWorktree),
        _enter,
    ),
    McpTool(
        "exit_worktree",
        "Exit the worktree that enter_worktree has made in this session; continue in the directory"
        " originalCwd of the answer. It never touches a worktree that a user or another session made,"
        " earlier sessions included. If this session has entered no worktree, it is a no-op: it says so, and"
        " changes nothing. Call it only when the user asks to leave, or to end, the worktree. remove ends"
        " its tmux session, keep leaves it: the answer names it. Then you can enter another worktree.",
        {
            "action": {
                "type": "string",
                "enum": [action.value for action in ExitAction],
                "description": "keep: leave directory and branch as they are, for later. remove: delete"
                " both, once the work is merged or abandoned.",
            },
            "discard_changes": {
                "type": "boolean",
                "default": False,
                "description": "Only for remove, which refuses, and lists what would be lost, while there are"
                " uncommitted files or commits that the original branch lacks. Show this list to the user,"
                " and set this only if the user agrees to lose all of it.",
            },
        },
        _all_of(ExitedWorktree),
        _exit,
    ),
    McpTool(
        "worktree_status",
        "Report whether you work in a linked git worktree, with its path, its branch, and the path of the"
        " main checkout. This is the worktree that this session has entered, else the one of the directory"
        " for which the server was started. Changes nothing.",
        {},
        _object(
            {
                "isWorktree": {"type": "boolean"},
                "path": {"type": "string"},
                "branch": {"type": ["string", "null"]},
                "mainRepoPath": {"type": "string"},
            },
            ["isWorktree"],
        ),
        _status,
        reads=True,
    ),
)
"""All tools; the descriptions follow those of the documented enter/exit pair."""
