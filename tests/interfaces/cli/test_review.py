"""``ralph-wrap review`` on the command line: limits, order, columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from ralph_wrap.commands import review
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.review import table
from tests.commands.review.reviewing import ROW
from tests.support.histories import Grown, grow, grow_all
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import Terminal


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (None, ["live", "merged", "main", "pair", "none"]),
        ("live", ["live"]),
        ("unmerged", ["live", "main", "pair", "none"]),
        ("conflicting", ["main", "pair"]),
    ],
)
def test_a_list_is_limited(only: str | None, found: list[str]) -> None:
    """To what is worked on, what is to land, what needs a hand."""
    rows = [
        ROW._replace(branch="live", verdict="live"),
        ROW._replace(branch="merged", merged=True),
        ROW._replace(branch="main", conflicts_main=True),
        ROW._replace(branch="pair", conflicts=("09be",)),
        ROW._replace(branch="none", merged=None, conflicts_main=None, conflicts=None),
    ]
    assert [row.branch for row in review.limited(rows, only)] == found


@pytest.mark.parametrize(
    ("field", "found"),
    [
        (None, "abc"),
        ("ahead", "cab"),
        ("-ahead", "acb"),
        ("overlaps", "bac"),
        ("branch", "abc"),
        ("-branch", "cba"),
    ],
)
def test_a_list_is_sorted(field: str | None, found: str) -> None:
    """By any field, lists by their length; what is not known comes last."""
    rows = [
        ROW._replace(branch="a", ahead=10, overlaps=("x",)),
        ROW._replace(branch="b", ahead=None, overlaps=()),
        ROW._replace(branch="c", ahead=9, overlaps=("x", "y")),
    ]
    assert "".join(row.branch for row in review.ordered(rows, field)) == found


@pytest.mark.parametrize(("only", "sort"), [("merged", None), (None, "size"), (None, "--ahead"), (None, "")])
def test_a_mistake_is_told(only: str | None, sort: str | None) -> None:
    """With what there is to choose from."""
    with pytest.raises(UsageError):
        review.ordered(review.limited([ROW], only), sort)


NOW = datetime(2026, 1, 2, 5, 4, 5, tzinfo=UTC)


def test_a_table_is_columns() -> None:
    """Which a pipe can take: nothing but text."""
    rows = [
        ROW,
        ROW._replace(branch="ralph/作業", agent=None, recorded=False, conflicts_main=True),
        ROW._replace(branch="ralph/0001", verdict="live", merged=True, saved="ralph/0001-wip", overlaps=()),
        ROW._replace(branch="ralph/0002", ended=None, conflicts=None, conflicts_main=None, files=None),
    ]
    assert table(rows, NOW).split("\n") == [
        (
            "BRANCH      AGENT         STATE    AGE  AHEAD  BEHIND  FILES  LINES   "
            "SAVED  MAIN      CONFLICTS  OVERLAPS"
        ),
        (
            "ralph/a3f2  claude        promise  2h   2      1       3      +30 -4  "
            "no     clean     -          09be"
        ),
        (
            "ralph/作業  not recorded  promise  2h   2      1       3      +30 -4  no"
            "     conflict  -          09be"
        ),
        (
            "ralph/0001  claude        live     2h   2      1       3      +30 -4  "
            "yes    merged    -          -"
        ),
        (
            "ralph/0002  claude        promise  -    2      1       -      -       "
            "no     -         -          09be"
        ),
    ]


def test_lists_give_way_on_a_narrow_terminal() -> None:
    """Lines are cut where that is not enough, and coloured."""
    wide = ROW._replace(overlaps=tuple(f"{number:04x}" for number in range(100)), conflicts_main=True)
    assert table([wide], NOW, width=120, colour=True).split("\n") == [
        (
            "BRANCH      AGENT   STATE    AGE  AHEAD  BEHIND  FILES  LINES   SAVED "
            " MAIN      CONFLICTS  OVERLAPS"
        ),
        (
            "\x1b[31mralph/a3f2  claude  promise  2h   2      1       3      +30 -4"
            "  no     conflict  -          0000,0001,0002,0003,0004,00…\x1b[0m"
        ),
    ]
    assert table([wide], NOW, width=80).split("\n") == [
        "BRANCH      AGENT  STATE    AGE  AHEAD  BEHIND  FILES  LINES   SAVED  MAIN     …",
        "ralph/a3f2  clau…  promise  2h   2      1       3      +30 -4  no     conflict …",
    ]


def test_a_long_command_gives_way_before_lists() -> None:
    """Cut by what its letters take; without a terminal it is whole."""
    rows = [ROW._replace(agent="./作業.sh 作業 " * 8), ROW]
    assert table(rows, NOW, width=101).split("\n") == [
        (
            "BRANCH      AGENT         STATE    AGE  AHEAD  BEHIND  FILES  LINES   SAVED  MAIN   "
            "CONFLICTS  OVERL…"
        ),
        "ralph/a3f2  ./作業.sh …   promise  2h   2      1       3      +30 -4  no     clean  -          09be",
        "ralph/a3f2  claude        promise  2h   2      1       3      +30 -4  no     clean  -          09be",
    ]
    assert table(rows, NOW).split("\n")[1].count("./作業.sh 作業 ") == 8


def test_the_branch_that_saved_work_belongs_to_has_a_column() -> None:
    """Where there is such a branch."""
    row = ROW._replace(branch="ralph/6732-wip", belongs_to="ralph/a587\n")
    assert [line.partition("OVERLAPS  ")[2] or line[-19:] for line in table([row, ROW], NOW).split("\n")] == [
        "BELONGS TO",
        "be      ralph/a587?",
        "        09be      -",
    ]
    assert "BELONGS TO" not in table([ROW], NOW)


def test_what_agents_write_does_nothing_to_a_terminal() -> None:
    """Nor does it begin a line."""
    shown = table([ROW._replace(agent="\x1b[2J\n", branch="ralph/\u202efoo", overlaps=("ralph/\x9b",))], NOW)
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert shown.count("\n") == 1


def test_the_command_prints_an_envelope(repo: Repo) -> None:
    """Its data is the list."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    done = command("review", "--json", "--only", "unmerged", "--sort=-ahead", cwd=repo.path)
    answer = json.loads(done.stdout)
    assert (done.status, answer["success"], answer["tool"]) == (0, True, "review")
    assert [(row["id"], row["ahead"], row["conflicts"]) for row in answer["data"]] == [("a3f2", 1, [])]


def test_a_terminal_gets_colours_and_no_line_that_is_too_long(repo: Repo) -> None:
    """Unless it is told otherwise."""
    grow_all(repo, [Grown(f"ralph/{number:04x}", ["main"], {"new": "1\n"}) for number in range(20)])
    with Terminal(PROGRAM, "review", "--sort=id", cwd=repo.path, size=(24, 100)) as terminal:
        assert terminal.finish() == 0
        lines = terminal.words.splitlines()
    assert (len(lines), {len(line) <= 100 for line in lines}) == (21, {True})
    piped = command("review", "--sort=id", cwd=repo.path, env={"COLUMNS": "40"})
    assert max(map(len, piped.stdout.decode().splitlines())) > 100
    plain = {"NO_COLOR": "1"}
    repo.git("branch", "ralph/merged")
    with Terminal(PROGRAM, "review", cwd=repo.path, env=plain) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b" not in terminal.screen
    with Terminal(PROGRAM, "review", cwd=repo.path) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b[2mralph/merged " in terminal.screen


def test_the_command_refuses_what_it_does_not_know(repo: Repo) -> None:
    """Before it looks at anything."""
    done = command("review", "--json", "--only", "merged", cwd=repo.path)
    assert (done.status, json.loads(done.stdout)["error"]["code"]) == (2, "usage")
