"""Read the usual command line of ``run`` and ``spawn`` without Typer, which takes long to load.

Typer reads everything unusual, such as a mistake or ``--help``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.config.options import PROJECT, ROWS
from ralph_wrap.config.table import TYPED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BY_WORD = {word: row for row in ROWS.values() if TYPED in row.sources for word in row.words}


class CommandLine(NamedTuple):
    """A typed command line: ``run`` or ``spawn``, the project directory, the options, the agent's command."""

    verb: str
    project: Path
    flags: Mapping[str, str]
    command: tuple[str, ...]


def read(arguments: Sequence[str], environ: Mapping[str, str]) -> CommandLine | None:
    """Read a command line; ``None`` if Typer must read it.

    Arguments:
        arguments: without the program's name.
        environ: may name the project.

    """
    if arguments[:1] not in (["run"], ["spawn"]):
        return None
    flags: dict[str, str] = {}
    words = [*arguments[1:]]
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            option, attached, value = word.partition("=")
        else:
            option, value = word[:2], word[2:]
            attached = value
        row = _BY_WORD.get(option)
        if row is None or (attached and row.is_switch) or not (attached or words or row.is_switch):
            return None
        value = value if attached else "on" if row.is_switch else words.pop(0)
        is_another = row.kind.several and row.name in flags
        flags[row.name] = f"{flags[row.name]}\n{value}" if is_another else value
    project = flags.pop(PROJECT.name, "") or environ.get(*PROJECT.variables) or "."
    return CommandLine(arguments[0], Path(project), flags, tuple(words))
