"""Read the usual command line of ``run`` and ``spawn`` without Typer, which is slower to load than all else.

Anything unusual, a mistake or a question for help, is left to Typer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PROJECT = "project"
_NAMES = {f"--{name.replace('_', '-')}": name for name in (_PROJECT, "job", *config.OPTIONS)} | {
    "-C": _PROJECT,
    "-a": "agent",
    "-p": "prompt",
    "-f": "prompt_file",
    "-n": "max_iterations",
}


class Typed(NamedTuple):
    """What was typed: ``run`` or ``spawn``, the project directory, the options, the agent's command."""

    verb: str
    project: Path
    flags: Mapping[str, str]
    command: tuple[str, ...]


def read(arguments: Sequence[str], environ: Mapping[str, str]) -> Typed | None:
    """Read a command line; ``None`` if Typer has to.

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
            option, given, value = word.partition("=")
        else:
            option, value = word[:2], word[2:]
            given = value
        name = _NAMES.get(option)
        if (
            name is None
            or (given and name in config.SWITCHES)
            or not (given or words or name in config.SWITCHES)
        ):
            return None
        value = value if given else "on" if name in config.SWITCHES else words.pop(0)
        flags[name] = f"{flags[name]}\n{value}" if name in config.LISTS and name in flags else value
    project = flags.pop(_PROJECT, "") or environ.get("RALPH_WRAP_PROJECT") or "."
    return Typed(arguments[0], Path(project), flags, tuple(words))
