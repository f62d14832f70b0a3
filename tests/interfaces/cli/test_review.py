"""``ralph-wrap review`` on the command line: limits, order, columns."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from ralph_wrap.commands import review
from ralph_wrap.commands.review import ReviewRow
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.review import table
from ralph_wrap.system.text import cells
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
    """By any field, lists by their length; unknown values come last."""
    rows = [
        ROW._replace(branch="a", ahead=10, overlaps=("x",)),
        ROW._replace(branch="b", ahead=None, overlaps=()),
        ROW._replace(branch="c", ahead=9, overlaps=("x", "y")),
    ]
    assert "".join(row.branch for row in review.ordered(rows, field)) == found


@pytest.mark.parametrize(("only", "sort"), [("merged", None), (None, "size"), (None, "--ahead"), (None, "")])
def test_a_mistake_lists_the_choices(only: str | None, sort: str | None) -> None:
    """With what there is to choose from."""
    with pytest.raises(UsageError):
        review.ordered(review.limited([ROW], only), sort)


NOW = datetime(2026, 1, 2, 5, 4, 5, tzinfo=UTC)


def test_a_table_is_columns() -> None:
    """Which a pipe can take: nothing but text, the title first and the last commit beside it."""
    rows = [
        ROW._replace(title="Login page", subject="Add a form"),
        ROW._replace(branch="ralph/作業", agent=None, recorded=False, conflicts_main=True),
        ROW._replace(branch="ralph/0001", verdict="live", merged=True, saved="ralph/0001-wip", overlaps=()),
        ROW._replace(branch="ralph/0002", ended=None, conflicts=None, conflicts_main=None, files=None),
    ]
    assert [re.split(" {2,}", line) for line in table(rows, NOW).split("\n")] == [
        [
            *("TITLE", "LAST COMMIT", "BRANCH", "AGENT", "STATE", "AGE", "AHEAD", "BEHIND", "FILES", "LINES"),
            *("SAVED", "MAIN", "CONFLICTS", "OVERLAPS"),
        ],
        [
            *("Login page", "Add a form", "ralph/a3f2", "claude", "done", "2h", "2", "1", "3", "+30 -4"),
            *("no", "clean", "-", "09be"),
        ],
        [
            *("-", "-", "ralph/作業", "not recorded", "done", "2h", "2", "1", "3", "+30 -4"),
            *("no", "conflict", "-", "09be"),
        ],
        [
            *("-", "-", "ralph/0001", "claude", "running", "2h", "2", "1", "3", "+30 -4"),
            *("yes", "merged", "-", "-"),
        ],
        ["-", "-", "ralph/0002", "claude", "done", "-", "2", "1", "-", "-", "no", "-", "-", "09be"],
    ]


WIDE = ROW._replace(
    title="Fix the login page of the whole shop",
    subject="Add a form for the users",
    agent="./作業.sh 作業 " * 8,
    branch="feature/login-page-of-the-shop",
    check="failed",
    saved="ralph/a3f2-wip",
    conflicts=tuple(f"{number:04x}" for number in range(100)),
    overlaps=tuple(f"{number:04x}" for number in range(100)),
    conflicts_main=True,
)


@pytest.mark.parametrize("width", [200, 120, 80, 60])
@pytest.mark.parametrize("rows", [[WIDE], [WIDE, ROW], [ROW]])
def test_a_table_fits_into_a_terminal(width: int, rows: list[ReviewRow]) -> None:
    """Cells are cut, then columns left out, by what their letters take; conflicts are always shown."""
    lines = table(rows, NOW, width=width).split("\n")
    assert max(map(cells, lines)) <= width
    assert all(name in lines[0] for name in ("TITLE", "BRANCH", "MAIN", "CONFLICTS"))
    assert all(not line.endswith("…") or "000" in line for line in lines)


@pytest.mark.parametrize("width", [120, 80])
def test_a_state_is_not_cut(width: int) -> None:
    """Its longest words fit: "limit re…" says nothing."""
    assert "limit reached" in table([WIDE, ROW._replace(ended_by="max-cost")], NOW, width=width)


def test_the_first_columns_left_out_are_behind_agent_and_lines() -> None:
    """The last lines name it, and the command that shows it."""
    hidden = []
    for width in range(250, 60, -1):
        note = " ".join(table([WIDE, ROW], NOW, width=width).split("\n")[3:])
        missing = note.removeprefix("ralph-wrap review | less -S also shows ").split(", ")
        hidden += [name for name in missing if name not in hidden]
    assert hidden[:6] == ["", "BEHIND", "AGENT", "LINES", "OVERLAPS", "FILES"]
    assert "CONFLICTS" not in hidden


def test_a_row_with_conflicts_is_coloured() -> None:
    """And nothing else of the table."""
    lines = table([WIDE, ROW], NOW, width=80, colour=True).split("\n")
    assert [line.startswith("\x1b[31m") and line.endswith("\x1b[0m") for line in lines[:3]] == [
        False,
        True,
        False,
    ]
    assert not any("\x1b" in line for line in (lines[0], *lines[2:]))


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


def test_without_a_branch_the_list_is_one_sentence(repo: Repo) -> None:
    """A table without rows would not say why it is empty."""
    assert command("review", cwd=repo.path).stdout.decode() == (
        "No session has left a branch. To start one: ralph-wrap run\n"
    )


def test_a_terminal_gets_colours_and_no_line_that_is_too_long(repo: Repo) -> None:
    """NO_COLOR turns the colours off."""
    grow_all(repo, [Grown(f"ralph/{number:04x}", ["main"], {"new": "1\n"}) for number in range(20)])
    with Terminal(PROGRAM, "review", "--sort=id", cwd=repo.path, size=(24, 100)) as terminal:
        assert terminal.finish() == 0
        lines = terminal.words.splitlines()
    assert (len(lines), {len(line) <= 100 for line in lines}) == (22, {True})
    assert lines[-1].startswith("ralph-wrap review | less -S also shows BEHIND")
    piped = command("review", "--sort=id", cwd=repo.path, env={"COLUMNS": "40"})
    assert max(map(len, piped.stdout.decode().splitlines())) > 100
    plain = {"NO_COLOR": "1"}
    repo.git("branch", "ralph/merged")
    with Terminal(PROGRAM, "review", cwd=repo.path, env=plain) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b" not in terminal.screen
    with Terminal(PROGRAM, "review", cwd=repo.path) as terminal:
        assert terminal.finish() == 0
        assert re.search(rb"\x1b\[2m-[^\n]* ralph/merged ", terminal.screen)


def test_the_command_refuses_what_it_does_not_know(repo: Repo) -> None:
    """Before it looks at anything."""
    done = command("review", "--json", "--only", "merged", cwd=repo.path)
    assert (done.status, json.loads(done.stdout)["error"]["code"]) == (2, "usage")
