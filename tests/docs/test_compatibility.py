"""The page on what works with what has a row for each test, and no other one."""

from __future__ import annotations

from tests.docs.documents import DOCS
from tests.session.what_works import table

PAGE = DOCS / "compatibility.md"


def test_each_row_of_the_page_is_a_test() -> None:
    """The tables are those of the rows that ``tests/session/test_what_works.py`` runs."""
    lines = PAGE.read_text().splitlines(keepends=True)
    found = "".join(line for line in lines if line.startswith(("|", "## ")))
    wanted = "".join(f"{line}\n" for line in table().splitlines() if line)
    assert found == wanted, f"The tables of {PAGE.name} are not current. Replace them with:\n\n{table()}"
