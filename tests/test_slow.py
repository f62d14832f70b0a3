"""The list of slow tests, ``tests/slow.txt``."""

from __future__ import annotations

from tests.support.processor_time import LIST, slow_tests


def test_each_entry_is_a_test() -> None:
    """An entry without its test is out of date: rename it, delete it, or run ``make measure``."""
    for entry in slow_tests():
        module, _, name = entry.partition("::")
        assert f"def {name}(" in (LIST.parent / module).read_text(), entry
