"""Which branches are shown, in which order, and when they are compared anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from ralph_wrap.commands.review import ReviewRow
from ralph_wrap.interfaces.web.conflict_matrix import matrix
from ralph_wrap.interfaces.web.table import listing
from tests.interfaces.web.serving import compared, pages, work_on
from tests.support.blocking_git import Gate
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interfaces.web.serving import Pages
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")


def _row(number: int, **known: object) -> ReviewRow:
    printed: dict[str, object] = {
        **dict.fromkeys(ReviewRow._fields),
        "id": f"{number:04x}",
        "branch": f"ralph/{number:04x}",
        "recorded": True,
        **known,
    }
    return ReviewRow(**printed)  # type: ignore[arg-type]


ROWS = [
    _row(1, ended="2026-01-01T00:00:00+00:00", ahead=1, merged=True, agent="claude"),
    _row(2, ended="2026-01-03T00:00:00+00:00", ahead=3, conflicts_main=True, insertions=5),
    _row(3, committed="2026-01-02T00:00:00+00:00", saved="ralph/0003-wip", verdict="live", deletions=9),
    _row(4, conflicts=("0002",), overlaps=("0002", "0003"), behind=7, files=1),
]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, "2 3 1 4"),
        ({"sort": "branch"}, "1 2 3 4"),
        ({"sort": "-branch"}, "4 3 2 1"),
        ({"sort": "-ahead"}, "2 1 3 4"),
        ({"sort": "-behind"}, "4 1 2 3"),
        ({"sort": "-lines"}, "3 2 1 4"),
        ({"sort": "-conflicts"}, "2 4 1 3"),
        ({"sort": "-overlaps"}, "4 1 2 3"),
        ({"sort": "-agent"}, "1 2 3 4"),
        ({"only": "live"}, "3"),
        ({"only": "unmerged"}, "2 3 4"),
        ({"only": "conflicting"}, "2 4"),
        ({"only": "saved"}, "3"),
        ({"find": "CLAUDE"}, "1"),
        ({"find": "ralph/0003"}, "3"),
        ({"find": "nothing"}, ""),
        ({"sort": "nonsense", "only": "nonsense", "page": "-1"}, "2 3 1 4"),
        ({"page": "99999"}, "2 3 1 4"),
        ({"page": "\u0664"}, "2 3 1 4"),
    ],
)
def test_order_and_choice(query: dict[str, str], shown: str) -> None:
    """What an address asks for; what it asks for by mistake is as if it had not."""
    assert " ".join(row.branch[-1] for row in listing(ROWS, query).rows) == shown


def test_a_table_has_pages() -> None:
    """All of them together are every row, once."""
    rows = [_row(number) for number in range(450)]
    found = [listing(rows, {"sort": "branch", "page": str(page)}) for page in range(3)]
    assert [(len(one.rows), one.matching, one.pages) for one in found] == [
        (200, 450, 3),
        (200, 450, 3),
        (50, 450, 3),
    ]
    assert [row for one in found for row in one.rows] == rows


def test_the_picture() -> None:
    """A square for each pair, and on the diagonal for a conflict with the main branch."""
    found = matrix(ROWS)
    assert found is not None
    assert [label.text for label in found.labels] == ["0002", "0004"]
    assert [(cell.x, cell.y, cell.kind, cell.title) for cell in found.cells] == [
        (0, 0, "main", "0002 conflicts with the main branch"),
        (0, 1, "conflict", "0004 conflicts with 0002"),
    ]
    assert matrix(ROWS[:1]) is None


def test_the_picture_has_an_end() -> None:
    """The branches with the most conflicts are on it, and the others are counted."""
    labels = [f"{number:04x}" for number in range(300)]
    rows = [_row(number, conflicts=tuple(labels[:number]), overlaps=()) for number in range(300)]
    found = matrix(rows)
    assert found is not None
    assert [label.text for label in found.labels] == labels[240:]
    assert (len(found.cells), found.omitted) == (60 * 59 // 2, 239)


def _through(gate: Gate, site: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the git of the pages pass a gate."""
    env = cast("dict[str, str]", site.context.project.git.env)
    for name, value in gate.env.items():
        monkeypatch.setitem(env, name, value)


def test_a_page_does_not_wait_for_a_comparison(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page comes without the rows, and then with those of before, while git is at work."""
    work_on(repo, "ralph/aaaa", {"file.txt": "a\n"})
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    site = pages(repo.path)
    with Gate(tmp_path / "one", "merge-tree") as gate:
        _through(gate, site, monkeypatch)
        html = site.get().text
        assert "The branches are being compared." in html
        assert '<meta http-equiv="refresh" content="1">' in html
        gate.wait()
        gate.open()
        assert compared(site).text.count('scope="row"') == 2
    work_on(repo, "ralph/cccc", {"file.txt": "c\n"})
    with Gate(tmp_path / "two", "merge-tree") as gate:
        _through(gate, site, monkeypatch)
        html = site.get().text
        assert "Something has changed" in html
        assert 'data-stale="yes"' in html
        assert 'content="1"' not in html
        assert html.count('scope="row"') == 2
        gate.wait()
        gate.open()
        assert compared(site).text.count('scope="row"') == 3


def test_nothing_is_compared_again_for_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as no ref and no record has changed, git is not asked."""
    work_on(repo, "ralph/aaaa", {"file.txt": "a\n"})
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    site = pages(repo.path)
    compared(site)
    with Gate(tmp_path / "gate", "merge-tree") as gate:
        _through(gate, site, monkeypatch)
        assert 'scope="row"' in site.get().text
        repo.git("tag", "v1")
        assert "Something has changed" not in site.get().text
        repo.git("branch", "ralph/cccc", "ralph/bbbb")
        eventually(lambda: "Something has changed" in site.get().text, "the change to be seen")
        gate.wait()
        gate.open()


def test_a_mistake_in_the_configuration(repo: Repo) -> None:
    """The page names it, and once it is corrected the page is as before."""
    repo.write(".ralph/config.toml", "main =\n")
    site = pages(repo.path)
    html = compared(site)
    assert (html.status, "main" in html.text) == (400, True)
    repo.write(".ralph/config.toml", 'main = "main"\n')
    assert eventually(lambda: site.get().status == 200, "the page")
