"""The words that a shell offers for an ID: ids with their titles, and titles.

A shell evaluates what it gets: zsh runs a command substitution in a word. An agent can write titles. So a
word has harmless letters only. A session with another title is offered by its id alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import typer

from ralph_wrap.branches import read as read_branches
from ralph_wrap.commands.drop import dropped as read_dropped
from ralph_wrap.errors import RalphError
from ralph_wrap.state import inventory
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.text import shortened

Found = TypeVar("Found")

_HARMLESS = re.compile(r"[\w.,/+][\w.,/+ -]*")  # no word that a shell or the program takes for an option
_BASH = {"_RALPH_WRAP_COMPLETE": "complete_bash"}
_WIDTH = 60  # columns of a title beside its id


def sessions(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer all sessions."""
    return _offered(((found.id, found.title) for found in _of(context, inventory.every)), incomplete)


def unfinished(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the sessions that are not finished."""
    return _offered(((found.id, found.title) for found in _of(context, inventory.unfinished)), incomplete)


def branches(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the branches of sessions."""
    return _offered(((found.label, found.title) for found in _of(context, read_branches)), incomplete)


def dropped(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the branches that can be restored."""
    return _offered(((found.label, found.title) for found in _of(context, read_dropped)), incomplete)


def _of(context: typer.Context, read: Callable[[Project], Iterable[Found]]) -> Iterator[Found]:
    typed = context.params.get("directory") or context.params.get("project") or "."  # text, not yet a Path
    with suppress(RalphError, OSError):  # completion shows no errors
        yield from read(find_project(Path(typed), os.environ))


def _offered(found: Iterable[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    """Return the words that begin as the typed one, each with an explanation."""
    titles = {label: title for label, title in found if _HARMLESS.fullmatch(label)}
    words = {
        label: shortened(" ".join(_HARMLESS.findall(title)), _WIDTH)
        for label, title in titles.items()
        if label.startswith(incomplete)
    }
    if incomplete:
        words |= {
            _word(title): label
            for label, title in titles.items()
            if _HARMLESS.fullmatch(title) and title.startswith(incomplete)
        }
    return [*words.items()]


class _Quoted(str):
    """A title that is quoted for bash. Typer drops words that do not begin as typed: that one is unquoted."""

    __slots__ = ()

    def startswith(self, *_: object) -> bool:
        """Return true: the title itself has been compared."""
        return True


def _word(title: str) -> str:
    """Return a title as a word of the shell; zsh and fish quote it themselves."""
    return _Quoted(title.replace(" ", "\\ ")) if os.environ.items() >= _BASH.items() else title
