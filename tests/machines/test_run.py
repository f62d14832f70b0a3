"""What the table of the machines says of the output of ``make test``."""

from __future__ import annotations

import pytest

from tests.machines.run import MACHINES, Machine, read

USER = Machine("bookworm", "user", may_administer=False)
ROOT = Machine("bookworm", "root", may_administer=True)

SUMMARY = "================ 7000 passed, 120 skipped in 600.12s (0:10:00) ================\n"
MOUNT = (
    "SKIPPED [12] tests/support/needs.py:58: the kernel lets these tests mount nothing: must be superuser\n"
)


def test_a_machine_on_which_all_pass() -> None:
    """With what is skipped because the machine lacks it."""
    outcome = read(MOUNT + SUMMARY, 0, USER.lacks)
    assert (outcome.counts, outcome.faults) == ({"passed": 7000, "skipped": 120}, [])


def test_a_skip_without_need_is_a_fault() -> None:
    """Root with the right to mount skips no test that mounts."""
    [fault] = read(MOUNT + SUMMARY, 0, ROOT.lacks).faults
    assert fault.startswith("skipped 12 without need: the kernel lets these tests mount nothing")


@pytest.mark.parametrize(
    ("output", "status", "fault"),
    [
        (
            "FAILED tests/a.py::b - no\n" + SUMMARY.replace("7000", "1 failed, 6999"),
            2,
            "FAILED tests/a.py::b - no",
        ),
        ("ERROR tests/a.py::b\n" + SUMMARY.replace("120", "1 error, 119"), 2, "ERROR tests/a.py::b"),
        ("make: no Python 3.11\n", 2, "make test ended with 2: make: no Python 3.11"),
        ("", 137, "make test ended with 137: "),
        ("no tests ran in 0.01s\n", 0, "make test ended with 0: no tests ran in 0.01s"),
    ],
)
def test_what_makes_a_row_fail(output: str, status: int, fault: str) -> None:
    """A failure, an error, or an end before there are any counts."""
    assert read(output, status, USER.lacks).faults == [fault]


def test_errors_count_as_failures() -> None:
    """In one column."""
    assert read("=== 3 passed, 2 errors in 1.00s ===\n", 1, ()).counts == {"passed": 3, "failed": 2}


def test_there_is_a_row_for_each_machine() -> None:
    """Two suites, two users, with rights and without."""
    assert len({machine.name for machine in MACHINES}) == 8
