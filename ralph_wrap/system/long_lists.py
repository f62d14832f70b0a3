"""Cut what is too long for a document: 9,000 paths in a report or an event are more than its readers take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MOST = 1000
"""Number of entries that a list in a document has at most."""

_LARGEST = 1 << 18  # bytes of one list as JSON; a path may have 4,096, and six times as many in JSON
_LONGEST = 1 << 15  # characters of one text

CUT = "cut"
"""The field of a document that says how many entries each list has that was cut."""


def cut_lists(fields: Mapping[str, Any], within: str = "") -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    """Return fields whose lists and texts are short enough for a document, and the whole lists that were cut.

    Arguments:
        fields: values that JSON can hold; a list in a field of a field is cut, too.
        within: put before the names of the lists.

    Returns:
        The fields, and the lists by their names: ``paths``, or ``taken_up.older`` of a field in a field.

    """
    short: dict[str, Any] = {}
    whole: dict[str, Sequence[Any]] = {}
    for name, value in fields.items():
        short[name] = value
        if isinstance(value, dict):
            short[name], inner = cut_lists(value, f"{within}{name}.")
            whole |= inner
        elif isinstance(value, (list, tuple)):
            short[name] = _beginning(value)
            if len(short[name]) < len(value):
                whole[within + name] = value
        elif isinstance(value, str) and len(value) > _LONGEST:
            short[name] = f"{value[:_LONGEST]}… ({len(value)} characters)"
    return short, whole


def with_counts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with short lists, and how many entries those have that were cut."""
    short, whole = cut_lists(fields)
    return short | {CUT: {name: len(values) for name, values in whole.items()}} if whole else short


def _beginning(values: Sequence[Any]) -> Sequence[Any]:
    size = 0
    for number, value in enumerate(values[:MOST]):
        size += len(json.dumps(value, default=str)) + 4  # comma, space, and quotes or a line of its own
        if size > _LARGEST:
            return values[:number]
    return values[:MOST]
