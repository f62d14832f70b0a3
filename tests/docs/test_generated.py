"""The reference pages are what the code says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.docs.documents import DOCS, GENERATED, ROOT
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.support.repo import Repo

GENERATE = DOCS / "generate.py"


def _described() -> Any:
    """Return the module of what the pages say beside the code."""
    spec = importlib.util.spec_from_file_location("described", DOCS / "described.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current() -> None:
    """Each page is what the code makes of it; the message names the command that writes them."""
    done = subprocess.run((sys.executable, GENERATE, "--check"), capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_that_is_not_current_is_seen(tmp_path: Path) -> None:
    """A changed page is shown, and so is the command that mends it."""
    docs = tmp_path / "docs"
    subprocess.run(("cp", "-r", DOCS, ROOT / "CONTRIBUTING.md", tmp_path), check=True)
    page = docs / "reference/exit-statuses.md"
    page.write_text(page.read_text().replace("124", "123"))
    words = (sys.executable, docs / "generate.py", "--check")
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    assert "-| 123 |" in done.stdout
    assert done.stdout.endswith("The pages are not current. Type: .venv/bin/python docs/generate.py\n")


def test_a_generated_page_says_so() -> None:
    """Each one, so that no person changes it by hand."""
    pages = [*(DOCS / "reference").glob("*.md")]
    assert pages
    assert [page.name for page in pages if GENERATED not in page.read_text()] == []


def test_the_answers_without_a_description_have_the_fields_of_their_class() -> None:
    """Those of ``worktree``, which are described beside the code."""
    from ralph_wrap.commands.worktree.cleanup import CleanedWorktree  # noqa: PLC0415 -- loads slowly
    from ralph_wrap.commands.worktree.enter import EnteredWorktree, ExitedWorktree  # noqa: PLC0415

    others = _described().OTHER_ANSWERS
    for name, kind in (
        ("worktree cleanup", CleanedWorktree),
        ("worktree enter", EnteredWorktree),
        ("worktree exit", ExitedWorktree),
    ):
        assert {*others[name]} == {*kind.__annotations__}, name


def _patterns(names: Iterable[str]) -> str:
    """Return one pattern for names with placeholders; a directory has all that is below it."""
    forms = [
        re.sub(r"<[^>]+>", "[^/]+", re.escape(name).replace(r"\<", "<").replace(r"\>", ">")) for name in names
    ]
    return "|".join(f"{form}.*" if form.endswith("/") else form for form in forms)


def test_what_sessions_make_is_listed(repo: Repo, script: Callable[[str], str]) -> None:
    """Each file below the project root and each ref, after sessions that save, snapshot, land and drop."""
    described = _described()
    before = {*repo.git("for-each-ref", "--format=%(refname)").split()}
    agent = script("echo $RALPH_ITERATION >> new; git commit -q --allow-empty -m one")
    landed, dropped = (run(repo.path, "-n", "2", "--ignore", "exclude", "--", agent).report for _ in range(2))
    command("merge", landed["id"], cwd=repo.path)
    command("drop", "--force", dropped["id"], cwd=repo.path)
    made = [path for path in (repo.path / ".ralph").rglob("*") if path.is_file()]
    names = [path.relative_to(repo.path).as_posix() for path in made]
    assert len(names) > 10
    assert [name for name in names if not re.fullmatch(_patterns(described.FILES), name)] == []
    refs = {*repo.git("for-each-ref", "--format=%(refname)").split()} - before
    assert len(refs) > 4
    assert [ref for ref in refs if not re.fullmatch(_patterns(described.REFS), ref)] == []
