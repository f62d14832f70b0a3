"""A plugin for pytest that measures processor time, and writes ``tests/slow.txt``: ``make measure``.

It measures the process of pytest, the commands that a test has started and waited for, and those that the
fork server ran. A process that outlives its test does not count. On a busy machine each process takes longer.
"""

from __future__ import annotations

import os
import resource
import statistics
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import process_table
from tests.support import fork_server

if TYPE_CHECKING:
    from collections.abc import Generator

LIST = Path(__file__).parent.parent / "slow.txt"
"""Each slow test function: the path of its module below ``tests/``, two colons, and its name."""

LIMIT = 0.2
"""Seconds of processor time that a test takes on average, over all of its parameters; more is slow."""


def slow_tests() -> frozenset[str]:
    """Return the entries of the list."""
    return frozenset(LIST.read_text().split())


def entry_of(item: pytest.Item) -> str:
    """Return what the list calls a test."""
    return f"{_module(item.path)}::{getattr(item, 'originalname', item.name)}"


@cache
def _module(path: Path) -> str:
    return path.relative_to(LIST.parent).as_posix() if path.is_relative_to(LIST.parent) else ""


class Measurement:
    """Measures each test, and brings the list up to date in the end."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test with its fixtures."""
        before = _used()
        result = yield
        self._seconds[entry_of(item)].append(_used() - before)
        return result

    def pytest_sessionfinish(self) -> None:
        """Replace the entries of the tests that have run."""
        slow = {entry for entry, seconds in self._seconds.items() if statistics.fmean(seconds) > LIMIT}
        LIST.write_text("\n".join(sorted(slow_tests() - self._seconds.keys() | slow)) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Measure, unless only the names of the tests are asked for."""
    if not config.option.collectonly:
        config.pluginmanager.register(Measurement())


def _used() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    own = sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))
    return own + process_table.processor_ticks(fork_server.server().pid) / os.sysconf("SC_CLK_TCK")
