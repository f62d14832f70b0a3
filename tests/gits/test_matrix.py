"""What a run of the matrix prints, and when it stops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.gits.matrix import SUITES, Deadline, Result, Row, add, read, table

_SECONDS = dict.fromkeys(SUITES, 60.0)


def test_the_table_names_what_was_not_run() -> None:
    """A row that had no time, or only time for some suites, never looks like one that passed."""
    rows = [Row("2.30", "3.11"), Row("2.47", "3.13"), Row("newest", "3.13")]
    ran = {
        rows[0]: Result("key", "2.30.2", _SECONDS, {"passed": 10, "skipped": 2}),
        rows[1]: Result("key", "2.47.3", {"git": 7.0}, {"passed": 3, "failed": 1}),
        rows[2]: Result("key", "2.55.0"),
    }
    assert table(rows, ran, SUITES) == [
        "git           Python    passed  failed  skipped  seconds",
        "2.30.2        3.11          10       0        2      360",
        "2.47.3        3.13           3       1        0        7  not run (time): " + ", ".join(SUITES[1:]),
        "2.55.0        3.13      not run (time)",
    ]
    assert [ran[row].is_complete for row in rows] == [True, False, False]
    assert [ran[row].is_red for row in rows] == [False, True, False]


def test_nothing_begins_that_would_end_too_late() -> None:
    """Without a number of minutes there is no end."""
    assert Deadline("").leaves(1e9)
    assert Deadline("2").leaves(60)
    assert not Deadline("2").leaves(180)


def test_a_suite_that_has_ended_is_kept_at_once(tmp_path: Path) -> None:
    """A row that is killed in the next one goes on behind it."""
    result, kept = Result("key", "2.30.2"), tmp_path / "row.json"
    add(result, "git", 60.0, Counter(passed=3), kept)
    add(result, "worktree", 90.0, Counter(passed=4, failed=1), kept)
    found = read(kept)
    assert found == result
    assert (found.seconds, found.counts) == ({"git": 60.0, "worktree": 90.0}, {"passed": 7, "failed": 1})
