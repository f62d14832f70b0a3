"""``ralph-wrap tell``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import tell as use_case
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude
from ralph_wrap.interfaces.cli.options import IDS, Directory, Json
from ralph_wrap.state import ids
from ralph_wrap.state.project import find_project
from ralph_wrap.state.told import LONGEST
from ralph_wrap.state.wording import outcome_in_words
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command

_LEAST = 2  # an id, and the text


def tell(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="ID… TEXT",
            help=f"{IDS} The last word is the message; - reads it from standard input.",
            autocompletion=completion.unfinished,
        ),
    ],
    directory: Directory = Path(),
    now: Annotated[
        bool, typer.Option("--now", help="End the running iteration for it; its work is kept.")
    ] = False,
    json: Json = False,
) -> None:
    """Tell running sessions something, from any container or the host: the next prompt begins with it.

    A session that waits reads it when it goes on. With --now, a session does not finish its iteration, nor
    wait for the next one; it still waits for the end of a usage limit.
    """
    with boundary("tell", json=json, project=directory):
        if len(words) < _LEAST:
            raise UsageError("an id and a message must be given", _what_to_add(words[0]))
        *names, text = words
        environ = become_owner(directory)
        project = find_project(directory, environ)
        told, problem = use_case.tell(project, names, _message(text), now=now)
        if not json:
            for session in told:
                typer.echo(f"{session.session or session.id}  {outcome_in_words(session.outcome)}")
        conclude("tell", [session._asdict() for session in told], problem, json=json)


def _what_to_add(word: str) -> str:
    """Return the hint for one word alone: an id, or the message."""
    if ids.agent_id_of(word):
        return f'{command("ralph-wrap", "tell", word)} "Use the new database."'
    return Commands.of(
        "to list the sessions: ralph-wrap ps",
        f"then, with one of their ids: {command('ralph-wrap', 'tell', 'ID', word)}",
    )


def _message(text: str) -> str:
    """Return the message that was typed, or that stands on standard input."""
    if text == "-":
        text = sys.stdin.buffer.read(LONGEST + 2).decode("utf-8", "surrogateescape").removesuffix("\n")
    return text
