"""Text for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.system.text import and_more, cells, cut, named, some


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("plain", 5), ("\u65e5\u672c", 4), ("e\u0301", 1), ("\uff21b", 3), ("caf\u00e9", 4)],
)
def test_a_wide_letter_takes_two_columns(text: str, width: int) -> None:
    """And a combining one none."""
    assert cells(text) == width


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_a_text_is_cut_to_its_room(text: str, room: int) -> None:
    """What is left is its beginning, and fits."""
    begin = cut(text, room)
    assert text.startswith(begin)
    assert cells(begin) <= room


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
