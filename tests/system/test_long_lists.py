"""What is too long for a document is cut where it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ralph_wrap.system.long_lists import cut_lists, with_counts

LONG = [f"{number}" for number in range(1001)]


@pytest.mark.parametrize(
    "fields",
    [{}, {"paths": LONG[:1000]}, {"paths": ("a",)}, {"inner": {"paths": []}}, {"text": "x" * 1000, "n": 7}],
    ids=["nothing", "1000", "tuple", "inner", "text"],
)
def test_what_is_short_stays_as_it_is(fields: dict[str, Any]) -> None:
    """And no count is added."""
    assert cut_lists(fields) == (fields, {})
    assert with_counts(fields) == fields


def test_a_long_list_is_cut_and_counted() -> None:
    """Also one in a field of a field."""
    fields = {"paths": LONG, "taken_up": {"older": tuple(LONG), "session": "s"}}
    short, whole = cut_lists(fields)
    assert short == {"paths": LONG[:1000], "taken_up": {"older": tuple(LONG[:1000]), "session": "s"}}
    assert whole == {"paths": LONG, "taken_up.older": tuple(LONG)}
    assert with_counts(fields)["cut"] == {"paths": 1001, "taken_up.older": 1001}


@pytest.mark.parametrize("letter", ["x", "\udcff"], ids=["ascii", "not UTF-8"])
def test_long_entries_are_counted_by_their_size(letter: str) -> None:
    """JSON writes six bytes for a byte that is no text."""
    short, whole = cut_lists({"paths": [letter * 4000] * 1000})
    assert 0 < len(json.dumps(short)) <= 1 << 18
    assert len(whole["paths"]) == 1000


def test_a_long_text_is_cut() -> None:
    """A message of git may have any length; its beginning says what happened."""
    short = with_counts({"error": "e" * 40_000})
    assert short == {"error": f"{'e' * 32768}… (40000 characters)"}
