"""The layout of the picture that shows conflicts between branches; a template draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ralph_wrap.commands.review import ReviewRow

_MOST = 60  # branches in one picture
_CELL = 18
_LABEL = 9.0  # width of a letter
_LONGEST = 16  # letters of a label


class MatrixCell(NamedTuple):
    """A coloured square: its place, its kind, and its words."""

    x: int
    y: int
    kind: str
    title: str


class MatrixLabel(NamedTuple):
    """The name of a branch beside its row and above its column."""

    branch: str
    text: str
    at: int


class ConflictMatrix(NamedTuple):
    """A picture; ``left`` is the width of the labels, ``omitted`` the number of branches left out."""

    labels: list[MatrixLabel]
    cells: list[MatrixCell]
    left: int
    size: int
    cell: int
    omitted: int


def matrix(rows: Sequence[ReviewRow]) -> ConflictMatrix | None:
    """Return the picture of all branches that conflict or overlap; ``None`` if there are none."""
    concerned = [row for row in rows if _weight(row)]
    if not concerned:
        return None
    heaviest = sorted(concerned, key=_weight, reverse=True)[:_MOST]
    chosen = sorted(heaviest, key=lambda row: row.branch)
    columns = {_key(row): number for number, row in enumerate(chosen)}
    labels = [
        MatrixLabel(row.branch, _label(row), number * _CELL + _CELL // 2) for number, row in enumerate(chosen)
    ]
    cells = []
    for number, row in enumerate(chosen):
        if row.conflicts_main:
            cells.append(MatrixCell(number, number, "main", f"{_key(row)} conflicts with the main branch"))
        conflicts, overlaps = set(row.conflicts or ()), set(row.overlaps or ())
        for other in sorted((conflicts | overlaps) & columns.keys(), key=columns.__getitem__):
            kind, word = (
                ("conflict", "conflicts with") if other in conflicts else ("overlap", "touches files of")
            )
            cells.append(MatrixCell(columns[other], number, kind, f"{_key(row)} {word} {other}"))
    left = int(max(len(label.text) for label in labels) * _LABEL) + 8
    return ConflictMatrix(labels, cells, left, len(chosen) * _CELL, _CELL, len(concerned) - len(chosen))


def _key(row: ReviewRow) -> str:
    """Return the name by which other rows refer to a row."""
    return row.id or row.branch


def _weight(row: ReviewRow) -> int:
    return 1000 * (len(row.conflicts or ()) + bool(row.conflicts_main)) + len(row.overlaps or ())


def _label(row: ReviewRow) -> str:
    name = row.id or row.branch.removeprefix("ralph/")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
