"""The tools: how they are described to an agent, and the use cases that they call; nothing of the protocol.

They are those of ``ralph-wrap worktree enter``, ``exit`` and ``status``, with the same answers and errors.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from ralph_wrap.commands.worktree.enter import Action, Entered, Exited, enter, entered, leave
from ralph_wrap.commands.worktree.status import status
from ralph_wrap.config import load
from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.state import project
from ralph_wrap.system.log import on_stderr
from ralph_wrap.worktree.managed.find import find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ralph_wrap.state.project import Project

_TYPES: dict[Any, Any] = {str: "string", bool: "boolean", str | None: ["string", "null"]}
"""JSON Schema's names."""

_KINDS: dict[str, type] = {"string": str, "boolean": bool}
"""Of arguments."""

_IN_WORDS = {
    "ralph-wrap worktree exit --action keep": 'exit_worktree with action "keep"',
    "--action keep": 'action "keep"',
    "--discard-changes": "discard_changes: true",
}
"""What hints say to who types commands, and what an agent can do: nobody else has the session's name."""


class Caller(NamedTuple):
    """For whom the tools are.

    Attributes:
        directory: the project that was named, absolute.
        cwd: the directory that worktrees are entered from.
        session: who enters and exits.
        environ: our environment.

    """

    directory: Path
    cwd: Path
    session: str
    environ: Mapping[str, str]


class Tool(NamedTuple):
    """One tool.

    Attributes:
        name: what it is called by.
        description: what an agent is told of it.
        arguments: JSON Schemas by name; one without a default has to be given.
        answer: JSON Schema of the answer.
        call: does it.
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


def answer(tool: Tool, caller: Caller, given: Mapping[str, Any]) -> dict[str, Any]:
    """Call a tool and return its answer, in strings that can be written as UTF-8.

    Arguments:
        given: its arguments, as they came.

    Raises:
        RalphError: it has refused or failed; the hint is for an agent.

    """
    try:
        found = tool.call(caller, project.find(caller.directory, caller.environ), **_checked(tool, given))
    except RalphError as error:
        for typed, called in _IN_WORDS.items():
            error.hint = error.hint.replace(typed, called)
        raise
    return {
        # Names of files are bytes.
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in found.items()
    }


def _checked(tool: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a tool; a misspelt or mistyped one is never taken for its default."""
    kinds = {name: "|".join(kind.get("enum", [kind["type"]])) for name, kind in tool.arguments.items()}
    hint = f"arguments: {', '.join(f'{name}: {kind}' for name, kind in kinds.items()) or 'none'}"
    for name in given:
        if name not in tool.arguments:
            raise UsageError(f"{tool.name} has no argument {name!r}", hint)
    for name in tool.schema["required"]:
        if name not in given:
            raise UsageError(f"{tool.name} lacks the argument {name!r}", hint)
    for name, value in given.items():
        kind = tool.arguments[name]
        if (
            not isinstance(value, _KINDS[kind["type"]])
            or value not in kind.get("enum", [value])
            or (isinstance(value, str) and not value.isprintable())  # no name of a file has a NUL
        ):
            raise UsageError(f"{tool.name}: {name} cannot be {value!r}", hint)
    defaults = {name: kind["default"] for name, kind in tool.arguments.items() if "default" in kind}
    return {**defaults, **given}


def _enter(caller: Caller, place: Project, *, name: str, tmux: bool) -> dict[str, Any]:
    settings = load(caller.directory, place.root, caller.cwd, {}, caller.environ, ())
    return enter(
        place,
        caller.environ,
        name,
        session=caller.session,
        cwd=caller.cwd,
        ignore=settings.ignore,
        copy=settings.copy,
        told=on_stderr(caller.environ),
        in_tmux=tmux,
    )._asdict()


def _exit(caller: Caller, place: Project, *, action: str, discard_changes: bool) -> dict[str, Any]:
    return leave(
        place,
        caller.environ,
        Action(action),
        session=caller.session,
        discard_changes=discard_changes,
    )._asdict()


def _status(caller: Caller, place: Project) -> dict[str, Any]:
    inside = _inside(caller, place)
    return status(project.find(inside, caller.environ) if inside else place, caller.environ)


def _inside(caller: Caller, place: Project) -> Path | None:
    if place.repository is not None:
        with contextlib.suppress(RalphError, OSError):  # it is just being removed, or not ours any more
            if there := entered(place, place.repository, caller.session):
                return find(place.repository.common_dir, there[0])[0].path
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
    Tool(
        "enter_worktree",
        "Make a git worktree of this project to work in until exit_worktree: the directory"
        " .ralph/worktrees/NAME on the new branch ralph/NAME, which begins at HEAD. What is not committed"
        " stays where it is. The answer has the path; no tool can change the working directory of an agent,"
        " so work at that path from then on. Only one at a time. Call it when the user asks for a worktree.",
        {
            "name": {
                "type": "string",
                "description": "Of the worktree: letters, digits, '-', '_' and single '.', no '/'.",
            },
            "tmux": {
                "type": "boolean",
                "default": False,
                "description": "Start a detached tmux session in it; the answer names it.",
            },
        },
        _all_of(Entered),
        _enter,
    ),
    Tool(
        "exit_worktree",
        "Exit the worktree that enter_worktree has made in this session; work goes on in the directory"
        " originalCwd of the answer. Never touches any other worktree: not one that was made by hand or by"
        " another session, earlier ones included. Without an entered one it is a no-op: it says so, and"
        " changes nothing. Call it only when the user asks to leave, or to end, the worktree. Its tmux"
        " session is ended by remove, and left by keep: the answer names it. Then another can be entered.",
        {
            "action": {
                "type": "string",
                "enum": [action.value for action in Action],
                "description": "keep: leave directory and branch as they are, to come back to. remove: delete"
                " both, once the work is landed or given up.",
            },
            "discard_changes": {
                "type": "boolean",
                "default": False,
                "description": "Only for remove, which refuses, and lists what would be lost, while there are"
                " uncommitted files or commits that the original branch lacks. Show that list to the user,"
                " and set this only if the user agrees to lose all of it.",
            },
        },
        _all_of(Exited),
        _exit,
    ),
    Tool(
        "worktree_status",
        "Tell whether work goes on in a linked git worktree: the one that was entered in this session, else"
        " that of the directory that the server was started for; its path, its branch, and the path of the"
        " main checkout. Changes nothing.",
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
"""Every tool; the words for an agent follow those of the documented pair."""
