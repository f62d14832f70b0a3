"""What differs, as git tells it and as two columns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, patch
from ralph_wrap.interfaces.web import diff_view
from ralph_wrap.interfaces.web.highlight import Highlighter
from ralph_wrap.interfaces.web.side_by_side import SideBySideRow, side_by_side
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Sequence


def _git(repo: Repo) -> Git:
    return Git(repo.path, git.git_environment(os.environ))


def _as_text(rows: Sequence[SideBySideRow]) -> list[str]:
    """Return rows as ``number text | number text``."""
    return [
        row.heading
        or " | ".join(
            f"{side.number or ''} {side.text}{'⊘' if side.cut else ''}".strip() for side in (row.old, row.new)
        )
        for row in rows
    ]


def test_files_of_every_kind(repo: Repo) -> None:
    """Added, deleted, changed, renamed, of another kind or mode, binary, and under any name."""
    odd = b"tab\tnew\nline \xff".decode("utf-8", "surrogateescape")
    repo.write("old.txt", "".join(f"{n}\n" for n in range(50)))
    repo.write("gone.txt", "gone\n")
    repo.write("kind", "file\n")
    repo.write("mode.sh", "#!/bin/sh\n")
    repo.write("picture", b"\0\1\2")
    before = repo.commit()
    (repo.path / "old.txt").rename(repo.path / "new.txt")
    (repo.path / "gone.txt").unlink()
    (repo.path / "kind").unlink()
    (repo.path / "kind").symlink_to("/etc/passwd")
    (repo.path / "mode.sh").chmod(0o755)
    repo.write("picture", b"\0\3\4\5")
    repo.write("empty")
    repo.write(odd, "a\nb\n")
    repo.write("file.txt", "two\n")
    after = repo.commit()
    found = patch.changes(_git(repo), before, after)
    assert {(one.status, one.path, one.before, one.added, one.deleted) for one in found} == {
        ("A", "empty", None, 0, 0),
        ("M", "file.txt", None, 1, 1),
        ("D", "gone.txt", None, 0, 1),
        ("T", "kind", None, 1, 1),
        ("M", "mode.sh", None, 0, 0),
        ("R", "new.txt", "old.txt", 0, 0),
        ("M", "picture", None, None, None),
        ("A", odd, None, 2, 0),
    }
    hunks = patch.patches(_git(repo), before, after, [one.path for one in found])
    assert {path: [line for hunk in lines for line in hunk.lines] for path, lines in hunks.items()} == {
        "empty": [],
        "file.txt": ["-one", "+two"],
        "gone.txt": ["-gone"],
        "kind": ["-file", "+/etc/passwd", "\\ No newline at end of file"],
        "mode.sh": [],
        "new.txt": [f"+{n}" for n in range(50)],  # its old name was not asked for
        "picture": [],
        odd: ["+a", "+b"],
    }
    notes = {view.change.path: view.note for view in diff_view.diff(_git(repo), before, after).files}
    assert {path: note for path, note in notes.items() if note} == {
        "empty": "empty",
        "mode.sh": "mode 100644 → 100755",
        "new.txt": "no lines differ",
        "picture": "binary, 3 bytes before, 4 bytes after",
    }


def test_names_are_no_patterns_and_no_options(repo: Repo) -> None:
    """A file may be called like anything."""
    before = repo.head
    for name in ("*", ":(top)x", "-p", "--output=x", "a [b]"):
        repo.write(name, "x\n")
    after = repo.commit()
    assert patch.patches(_git(repo), before, after, ["*"]).keys() == {"*"}
    assert patch.patches(_git(repo), before, after, ["--output=x", ":(top)x"]).keys() == {
        "--output=x",
        ":(top)x",
    }
    assert not (repo.path / "x").exists()


def test_lines_that_look_like_a_patch(repo: Repo) -> None:
    """Files hold patches, too."""
    before = repo.head
    text = "diff --git a/x b/x\n@@ -1 +1 @@\n--- a\n+++ b\n-- \n\\ No newline at end of file\n"
    repo.write("a.patch", text)
    repo.write("b.txt", "b\n")
    after = repo.commit()
    hunks = patch.patches(_git(repo), before, after, ["a.patch", "b.txt"])
    assert ["".join(f"{line[1:]}\n" for line in hunk.lines) for hunk in hunks["a.patch"]] == [text]
    assert [hunk.lines for hunk in hunks["b.txt"]] == [("+b",)]


def test_the_configuration_changes_nothing(repo: Repo) -> None:
    """Neither programs nor prefixes, orders and colours of a user, nor empty lines without their space."""
    before = repo.head
    repo.write("file.txt", "one\n\nthree\n\nfive\n")
    middle = repo.commit()
    repo.write("file.txt", "one\n\nTHREE\n\nfive\n")
    after = repo.commit()
    plain = patch.patches(_git(repo), middle, after, ["file.txt"])
    for key, value in {
        "diff.external": "false",
        "diff.noprefix": "true",
        "diff.suppressBlankEmpty": "true",
        "color.ui": "always",
        "diff.context": "0",
        "diff.renames": "copies",
        "diff.x.textconv": "false",
    }.items():
        repo.git("config", key, value)
    repo.write(".git/info/attributes", "*.txt diff=x\n")
    assert patch.patches(_git(repo), middle, after, ["file.txt"]) == plain
    [hunk] = plain["file.txt"]
    assert hunk.lines == (" one", " ", "-three", "+THREE", " ", " five")
    assert patch.changes(_git(repo), before, after)[0].added == 4


def test_two_columns(repo: Repo) -> None:
    """What was deleted stands beside what came instead; a file without a last line end is marked."""
    repo.write("file.txt", "".join(f"{n}\n" for n in range(1, 12)))
    before = repo.commit()
    repo.write("file.txt", "1\ntwo\nand a half\n3\n" + "".join(f"{n}\n" for n in range(4, 11)) + "eleven")
    after = repo.commit()
    hunks = patch.patches(_git(repo), before, after, ["file.txt"], context=1)["file.txt"]
    part = side_by_side("file.txt", hunks, Highlighter(), 0, 100)
    assert (_as_text(part.rows), part.more) == (
        [
            "@@ -1 +1 @@",
            "1 1 | 1 1",
            "2 2 | 2 two",
            " | 3 and a half",
            "3 3 | 4 3",
            "@@ -10 +11 @@",
            "10 10 | 11 10",
            "11 11 | 12 eleven⊘",
        ],
        None,
    )


def test_a_part_of_the_rows(repo: Repo) -> None:
    """All parts together are the whole, in any size."""
    before = repo.head
    repo.write("file.txt", "".join(f"{n}\n" for n in range(30)))
    after = repo.commit()
    hunks = patch.patches(_git(repo), before, after, ["file.txt"])["file.txt"]
    whole = side_by_side("file.txt", hunks, Highlighter(), 0, 1000).rows
    for size in (1, 7, len(whole)):
        rows: list[SideBySideRow] = []
        begin: int | None = 0
        while begin is not None:
            part = side_by_side("file.txt", hunks, Highlighter(), begin, size)
            rows += part.rows
            begin = part.more
        assert rows == whole


def test_history(repo: Repo) -> None:
    """Newest first, with what a page needs, whatever stands in a subject."""
    base = repo.head
    repo.git("commit", "--quiet", "--allow-empty", "--message", "a\x01b \u2028 <c>\n\nbody\n")
    repo.commit("last")
    [last, first] = patch.history(_git(repo), repo.head, [base], 10)
    assert (last.subject, last.parents, last.author) == ("last", (first.id,), "A. Tester")
    assert (first.subject, first.parents, first.time) == ("a\x01b \u2028 <c>", (base,), 1767323045)
    assert patch.history(_git(repo), repo.head, [base], 1, 1) == [first]
    assert patch.message(_git(repo), first.id) == "a\x01b \u2028 <c>\n\nbody"
    with pytest.raises(GitError):
        patch.history(_git(repo), "0" * 40, [], 1)


def test_big_files_are_not_compared(repo: Repo) -> None:
    """A single line of many megabytes has few lines, and is not shown all the same."""
    before = repo.head
    repo.write("big.txt", "x" * (9 << 20))
    repo.write("many.txt", "".join(f"{n}\n" for n in range(5000)))
    after = repo.commit()
    found = {
        view.change.path: (view.note, view.part) for view in diff_view.diff(_git(repo), before, after).files
    }
    assert found == {"big.txt": ("too big to show here: 9.4 MB", None), "many.txt": ("", None)}
    view = diff_view.one_file(_git(repo), before, after, ["many.txt"], 600)
    assert view is not None
    assert view.part is not None
    assert (_as_text(view.part.rows)[0], view.part.more) == (" | 600 599", 1200)
