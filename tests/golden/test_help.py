"""The help of each command, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralph_wrap.interfaces.cli.app import all_loaded
from tests.support.transcript import Transcript, check

GOLDEN = Path(__file__).parent / "help"


def _commands() -> list[tuple[str, ...]]:
    """Return the words of each command, also of those below another, and of the program itself."""
    found: list[tuple[str, ...]] = []

    def collect(command: object, words: tuple[str, ...]) -> None:
        found.append(words)
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            collect(inner, (*words, name))

    collect(all_loaded(), ())
    return found


@pytest.mark.parametrize("words", _commands(), ids=lambda words: "-".join(words) or "all")
def test_help(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As a terminal of 100 columns shows it."""
    transcript = Transcript(tmp_path)
    transcript.type(*words, "--help")
    check(GOLDEN / f"{'-'.join(words) or 'all'}.txt", transcript.text)


def test_each_file_belongs_to_a_command() -> None:
    """A command that is gone leaves no file."""
    assert {path.stem for path in GOLDEN.iterdir()} == {"-".join(words) or "all" for words in _commands()}
