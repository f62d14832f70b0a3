"""Each attack has a test that holds it, and one in which it succeeds.

``docs/development/attacks.md`` lists them; ``docs/development/records.md`` lists what records decide. The
tests below are those counterparts that belong to no module of a defence.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.web.access import AccessControl
from ralph_wrap.state import check_results
from ralph_wrap.state.check_results import CheckResult
from ralph_wrap.state.project import find_project
from ralph_wrap.state.registry import Registry
from ralph_wrap.system.delete_tree import TreeDeletion
from ralph_wrap.worktree import trash as trashes
from tests.docs.documents import DOCS, rows
from tests.interfaces.web.serving import TOKEN, pages
from tests.security import defences
from tests.security.forgeries import forge
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from tests.support.repo import Repo

TESTS = Path(__file__).parents[1]
ATTACKS = DOCS / "development" / "attacks.md"
RECORDS = DOCS / "development" / "records.md"

_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def _missing(cell: str) -> list[str]:
    """Return the tests in a cell that do not exist; a cell without a test is one that is missing."""
    named = _TEST.findall(cell)
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (TESTS / path).is_file()
        or not re.search(rf"^def {name}\(", (TESTS / path).read_text(), re.MULTILINE)
    ]
    return missing if named else [cell]


def test_each_attack_has_a_test_and_a_counterpart() -> None:
    """A row without a test fails, and so does one whose test has another name by now."""
    table = rows(ATTACKS.read_text())
    assert len({name for name, *_ in table}) == len(table) == 29
    assert {name: found for name, _, held, off in table if (found := _missing(held) + _missing(off))} == {}


def test_each_decision_of_a_record_has_a_test() -> None:
    """As the page says."""
    table = rows(RECORDS.read_text().split("## Decisions and their proofs\n")[1])
    assert len(table) > 10
    assert {question: found for question, *_, test in table if (found := _missing(test))} == {}


@pytest.mark.parametrize("cell", ["", "by hand", "`security/test_attacks.py::test_none`", "`x.py::test_a`"])
def test_a_row_without_a_test_is_found(cell: str) -> None:
    """Counterpart of the two tests above."""
    assert _missing(cell) != []


# Attacks with their defence switched off


def test_plain_git_runs_what_a_worktree_names(repo: Repo, tmp_path: Path) -> None:
    """The user's own worktree has another ``.git``: plain git runs its program, and an audit finds it."""
    repo.git("worktree", "add", "-q", "../mine")
    evil = tmp_path / "evil"
    subprocess.run(("git", "init", "-q", evil), check=True)
    program = f"touch {tmp_path / 'ran'}; false"
    subprocess.run(("git", "-C", evil, "config", "core.fsmonitor", program), check=True)
    (tmp_path / "mine" / ".git").write_text(f"gitdir: {evil / '.git'}\n")
    repo.git("status", cwd=tmp_path / "mine")
    assert (tmp_path / "ran").exists()


def test_plain_git_obeys_another_common_directory(repo: Repo, tmp_path: Path) -> None:
    """A file ``commondir`` in ``.git`` leads to another repository, which names a program."""
    repo.git("clone", "-q", ".", tmp_path / "other")
    repo.git("config", "core.fsmonitor", f"touch {tmp_path / 'ran'}; false", cwd=tmp_path / "other")
    repo.git("status")
    assert not (tmp_path / "ran").exists()
    repo.write(".git/commondir", f"{tmp_path}/other/.git\n")
    repo.git("status")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("by_path", [True, False])
def test_a_deletion_by_path_follows_the_symlink(tmp_path: Path, by_path: bool) -> None:
    """The trash is swapped for a symlink after the look; a deletion by descriptors stays where it was."""
    trash, name = tmp_path / "trash", "20260102T030405Z-abcd"
    victim = tmp_path / "victim" / name / "precious"
    for directory in (trash / name, victim.parent):
        directory.mkdir(parents=True)
        (directory / trashes.TOKEN).write_text(name)
    victim.write_text("precious\n")
    parent = os.open(trash, os.O_RDONLY | os.O_DIRECTORY)
    entry = os.open(trash / name, os.O_RDONLY | os.O_DIRECTORY)
    trash.rename(tmp_path / "aside")
    trash.symlink_to(victim.parents[1])
    if by_path:
        shutil.rmtree(trash / name)
    else:
        TreeDeletion(parent, entry, name, trashes.TOKEN).run()
    assert victim.exists() is not by_path
    assert (tmp_path / "aside" / name).exists() is by_path


def test_without_the_signature_a_false_check_passes(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent changes the status of a check that failed."""
    project = find_project(repo.path, os.environ)
    Registry(repo.path / ".ralph" / "run").prepare()
    result = CheckResult(1, "main", repo.head, "2026-01-02T03:04:05+00:00", "hash")
    check_results.keep(project, repo.head, result)
    false = {"checks": {repo.head: result._asdict() | {"status": 0, "signature": "f" * 64}}}
    forge(repo.path / ".ralph" / "run" / "checks.json", false)
    assert check_results.results(project) == {}
    monkeypatch.setattr(check_results, "is_signed", lambda *_: True)
    assert check_results.results(project)[repo.head].passed


def test_a_lock_without_a_limit_is_waited_for(repo: Repo) -> None:
    """The kernel waits in the place of our code: the session says nothing while the lock is held."""
    held = os.open(repo.path / ".git", os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    words = ("run", "-n", "1", "--", "true")
    with defences.start(defences.NO_LIMIT, *words, cwd=repo.path) as waiting:
        blocked = re.compile(rf"-> FLOCK .* {waiting.pid} ")
        eventually(lambda: blocked.search(Path("/proc/locks").read_text()), "the wait")
        assert waiting.poll() is None
        os.close(held)
        said = waiting.communicate(timeout=CAP)[1]
    assert (waiting.returncode, b"lock.waiting" in said) == (0, False)


def test_a_strict_parser_locks_the_user_out(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """http.cookies drops each cookie after a malformed one of another server."""

    def strict(_: AccessControl, headers: Headers) -> bool:
        found = SimpleCookie(headers.get("cookie", "")).get("ralph-wrap")
        return found is not None and found.value == TOKEN

    monkeypatch.setattr(AccessControl, "_is_known", strict)
    site = pages(repo.path)
    answers = {
        before: site.ask(
            "GET", f"{site.root}/", site.known | {"cookie": f"{before}; {site.known['cookie']}"}
        ).status
        for before in ("a=b", "a[b]=c")
    }
    assert answers == {"a=b": 200, "a[b]=c": 403}


def _with_a_module(repo: Repo) -> None:
    for name in ("__init__.py", "__main__.py"):
        repo.write(f"ralph_wrap/{name}", "import pathlib; pathlib.Path('ran').touch()\n")


def test_the_program_imports_nothing_of_the_project(repo: Repo) -> None:
    """The installed command, and the command line by which ralph-wrap starts itself."""
    _with_a_module(repo)
    for words in ((PROGRAM, "--version"), (sys.executable, "-P", "-m", "ralph_wrap", "--version")):
        done = subprocess.run(words, cwd=repo.path, capture_output=True, check=True)
        assert b"ralph-wrap" in done.stdout, words
        assert not (repo.path / "ran").exists(), words


def test_python_in_the_project_imports_the_module_of_the_project(repo: Repo) -> None:
    """Counterpart: ``python -m`` puts the current directory first, as the page on security says."""
    _with_a_module(repo)
    subprocess.run((sys.executable, "-m", "ralph_wrap"), cwd=repo.path, check=True)
    assert (repo.path / "ran").exists()
