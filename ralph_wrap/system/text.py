"""Text for people: its width in a terminal, spans of time, the first of a long list, commands to paste."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, split_graphemes

_MEBIBYTE, _GIBIBYTE = 1 << 20, 1 << 30  # bytes

_GIT_VERBS = "branch|diff|fetch|fsck|log|merge|push|status|switch|worktree"
_VERBS_ELSEWHERE = "init|mcp|help|version"  # they have no -C
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")  # ECMA-48
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_COMMAND = re.compile(
    rf"\bralph-wrap (?:(?:worktree|config) )?(?!{_VERBS_ELSEWHERE})[a-z]+|\bgit(?= (?:{_GIT_VERBS})\b)"
)

# rich loads its table of widths for the first letter that is not plain. By then root may have become the
# owner of a project, who perhaps cannot read where Python stands.
cell_len("\u2026")


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most *width* columns of a terminal."""
    letters, _ = split_graphemes(text)
    for start, _, columns in letters:
        width -= columns
        if width < 0:
            return text[:start]
    return text


def shortened(text: str, width: int) -> str:
    """Return a text that takes at most *width* columns of a terminal; an ellipsis ends one that was cut."""
    return text if cells(text) <= width else f"{cut(text, width - 1)}…"


def plain(text: str) -> str:
    """Return a text in one line, without control characters and other letters that cannot be seen."""
    if text.isprintable():
        return " ".join(text.split())
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def readable(line: str) -> str:
    """Return a line of a program's output as a terminal shows it, without colours and control characters."""
    shown = next((part for part in reversed(_SEQUENCE.sub("", line).split("\r")) if part), "")
    return _CONTROL.sub("", shown)


def span(seconds: float) -> str:
    """Return a length of time: ``12s``, ``4m12s``, and without seconds from an hour on (``1h05m``)."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def readable_size(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / _GIBIBYTE:,.1f} GiB" if size >= _GIBIBYTE else f"{size / _MEBIBYTE:,.1f} MiB"


def dollars(amount: float) -> str:
    """Return an amount of US dollars, rounded to cents: ``$0.15``."""
    return f"${amount:.2f}"


def some(items: Sequence[str], most: int, suffix: str = "") -> list[str]:
    """Return the first of many items, and after them how many more there are.

    Arguments:
        items: all of them.
        most: how many are shown.
        suffix: what follows the number.

    """
    return [*items[:most], *and_more(len(items), most, suffix)]


def and_more(count: int, most: int, suffix: str = "") -> list[str]:
    """Return the line after the first of many items, none if all are shown; arguments as for :func:`some`."""
    return [f"and {count - most} more{suffix}"] if count > most else []


def named(items: Sequence[str], most: int) -> str:
    """Return the first of many items in a phrase: ``a, b and 7 more``."""
    return " ".join([", ".join(items[:most]), *and_more(len(items), most)])


def near(path: str) -> str:
    """Return a path relative to our directory, if it is shorter so."""
    try:
        return min(os.path.relpath(path), path, key=len)
    except OSError:  # our directory is gone
        return path


def command(*words: str | os.PathLike[str]) -> str:
    """Return a command line to paste: for a shell, each word is one word, whoever has chosen it.

    Git allows ``$(…)``, ``;``, ``|`` and backticks in the names of branches, and an agent names branches.
    """
    return shlex.join([os.fspath(word) for word in words])


def operands(*words: str) -> tuple[str, ...]:
    """Return arguments of a git command that are no options, though a branch may be called ``-M``."""
    return ("--", *words) if any(word.startswith("-") for word in words) else words


def rename_command(branch: str, new: str = "NAME") -> str:
    """Return the command line that renames a branch."""
    return command("git", "branch", "-m", *operands(branch, new))


def location(directory: Path) -> str:
    """Return the words that a command needs to find a project from where the user stands; often none.

    Arguments:
        directory: the directory that the user has named, relative to ours.

    """
    try:
        named, current = directory.resolve(), Path.cwd()
    except OSError:  # our directory is gone
        return ""
    top = _top(current)
    if named == current or (top is not None and top == _top(named)):
        return ""
    return f"-C {shlex.quote(os.fspath(directory))}"


def _top(directory: Path) -> Path | None:
    """Return the top of the checkout that a directory is in."""
    return next((path for path in (directory, *directory.parents) if os.path.lexists(path / ".git")), None)


def located(commands: str, words: str) -> str:
    """Return a text with the words of :func:`location` in each command of ralph-wrap or git."""
    return _COMMAND.sub(lambda found: f"{found[0]} {words}", commands) if words else commands
