"""Text for people."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.system.text import (
    and_more,
    cells,
    cut,
    located,
    location,
    named,
    near,
    rename_command,
    some,
    span,
)

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.mark.parametrize("name", ["side", "-M", "a$(touch${IFS}x)"])
def test_the_command_that_renames_a_branch_works(repo: Repo, name: str) -> None:
    """Whatever it is called; git has made branches with the name of an option."""
    repo.git("update-ref", f"refs/heads/{name}", "HEAD")
    subprocess.run(("sh", "-c", rename_command(name, "other")), cwd=repo.path, check=True)
    assert repo.git("for-each-ref", "--format=%(refname:short)", "refs/heads") == "main\nother"


@pytest.mark.parametrize(
    ("text", "width"),
    [
        *[("", 0), ("plain", 5), ("\u65e5\u672c", 4), ("e\u0301", 1), ("\uff21b", 3), ("caf\u00e9", 4)],
        *[("\N{ZERO WIDTH SPACE}", 0), ("\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}", 2)],
    ],
)
def test_a_wide_letter_takes_two_columns(text: str, width: int) -> None:
    """A combining one takes none, and letters that are joined take as much as one."""
    assert cells(text) == width


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_a_text_is_cut_to_its_room(text: str, room: int) -> None:
    """The beginning is left, and fits."""
    begin = cut(text, room)
    assert text.startswith(begin)
    assert cells(begin) <= room


def test_joined_letters_are_cut_together() -> None:
    """Half of them would be another picture."""
    assert cut("a\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}b", 2) == "a"
    assert cut("a\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}b", 3) == "a\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"


@given(st.text())
def test_a_text_that_fits_is_not_cut(text: str) -> None:
    """Its last letter is shown."""
    assert cut(text, cells(text)) == text


@pytest.mark.parametrize(
    ("items", "lines", "phrase"),
    [
        (["a"], ["a"], "a"),
        (["a", "b"], ["a", "b"], "a, b"),
        (["a", "b", "c"], ["a", "b", "and 1 more files"], "a, b and 1 more"),
        (["a", "b", "c", "d"], ["a", "b", "and 2 more files"], "a, b and 2 more"),
    ],
)
def test_the_first_few_are_named(items: list[str], lines: list[str], phrase: str) -> None:
    """The others are counted."""
    assert some(items, 2, " files") == lines
    assert named(items, 2) == phrase


def test_nothing_follows_a_list_that_is_whole() -> None:
    """As many as are shown."""
    assert and_more(2, 2) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m00s"), (252, "4m12s"), (3600, "1h00m"), (3900, "1h05m")],
)
def test_a_span_has_seconds_below_an_hour(seconds: float, text: str) -> None:
    """In a longer one they do not matter."""
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("start", "typed", "words"),
    [
        *[(".", ".", ""), (".", "sub", ""), ("sub", ".", ""), ("sub", "..", "")],
        *[("..", "project", "-C project"), ("..", "project/sub", "-C project/sub")],
        *[("nested", "..", "-C .."), ("..", "it's", """-C 'it'"'"'s'""")],
    ],
)
def test_a_command_names_a_project_that_is_elsewhere(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, start: str, typed: str, words: str
) -> None:
    """One that is found from where the user stands needs no name."""
    for directory in ("sub", "nested/.git"):
        (repo.path / directory).mkdir(parents=True)
    monkeypatch.chdir(repo.path / start)
    assert location(Path(typed)) == words


@pytest.mark.parametrize(
    ("text", "with_words"),
    [
        ("to list them: ralph-wrap ps --all", "to list them: ralph-wrap ps -C x --all"),
        ("ralph-wrap worktree exit --action keep", "ralph-wrap worktree exit -C x --action keep"),
        ("ralph-wrap config show", "ralph-wrap config show -C x"),
        ("git merge a\nralph-wrap resume a", "git -C x merge a\nralph-wrap resume -C x a"),
        ("git status", "git -C x status"),
        ("git -C /y status", "git -C /y status"),
        ("install git 2.31 or newer", "install git 2.31 or newer"),
        ("ralph-wrap init --stop-timeout 8", "ralph-wrap init --stop-timeout 8"),
    ],
)
def test_the_name_of_the_project_follows_the_command(text: str, with_words: str) -> None:
    """Of ralph-wrap and of git; the other words of a hint stay."""
    assert located(text, "-C x") == with_words
    assert located(text, "") == text


def test_a_path_begins_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless that is longer."""
    monkeypatch.chdir(tmp_path)
    assert near(f"{tmp_path}/a/b") == "a/b"
    assert near("/x") == "/x"
