"""A branch that changes what other programs run says so, and these files are read first."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.fixture
def branch(repo: Repo) -> Repo:
    """Return a repository whose branch ralph/a3f2 changes what runs, among other files."""
    repo.git("switch", "-qc", "ralph/a3f2")
    for path in ("a.txt", "z[1].txt", ".github/workflows/[x].yml", "package.json"):
        repo.write(path, "new\n")
    repo.write("tool", "#!/bin/sh\n", executable=True)
    (repo.path / "out").symlink_to("/etc/passwd")
    repo.commit("work")
    repo.git("switch", "-qc", "ralph/b0b0", "main")
    repo.write("a.txt", "new\n")
    repo.commit("only a text")
    repo.git("switch", "-q", "main")
    return repo


def test_review_names_them(branch: Repo) -> None:
    """With their kinds, in JSON and in a column; a branch that touches none has none."""
    rows = json.loads(command("review", "--json", cwd=branch.path).stdout)["data"]
    touches = {row["branch"]: {touch["path"]: touch["kind"] for touch in row["touches"]} for row in rows}
    assert touches == {
        "ralph/a3f2": {
            ".github/workflows/[x].yml": "ci",
            "out": "symlink",
            "package.json": "build",
            "tool": "executable",
        },
        "ralph/b0b0": {},
    }
    shown = command("review", cwd=branch.path).stdout.decode()
    assert "TOUCHES" in shown
    assert "ci,symlink,build,executable" in re.sub(r"[ ]*,[ ]*", ",", shown).replace(" ", ",")


def test_diff_shows_them_first(branch: Repo) -> None:
    """Before files whose names come earlier; characters of patterns in a name mean themselves."""
    shown = command("diff", "a3f2", cwd=branch.path).stdout.decode()
    files = re.findall(r"^diff --git a/(\S+)", shown, re.MULTILINE)
    assert files == [".github/workflows/[x].yml", "out", "package.json", "tool", "a.txt", "z[1].txt"]
    plain = branch.git("diff", "--name-only", "main", "ralph/a3f2").split("\n")
    assert plain != files, "git itself has another order"


def test_the_page_shows_them_first(branch: Repo) -> None:
    """With the kind of program that runs them."""
    page = branch.path.parent / "page.html"
    assert command("review", "--html", page, cwd=branch.path).status == 0
    text = page.read_text()
    words = re.findall(r'<span class="word [A-Z]">([^<]*)</span> <span class="name">([^<]*)<', text)
    assert [(word, name.strip()) for word, name in words[:5]] == [
        ("added, ci", ".github/workflows/[x].yml"),
        ("added, symlink", "out"),
        ("added, build", "package.json"),
        ("added, executable", "tool"),
        ("added", "a.txt"),
    ]
