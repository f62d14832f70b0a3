"""Names of files are bytes: the program works in each locale, also where they are not UTF-8."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import skip_or_fail
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., subprocess.CompletedProcess[bytes]]

LOCALES = {
    "C": "C",
    "UTF-8": "C.UTF-8",
    "ISO-8859-1": "de_DE.ISO-8859-1",
    "EUC-JP": "ja_JP.EUC-JP",
    "unset": "",
}
_SOURCES = Path("/usr/share/i18n/locales")
NAME = "neu-é-🎉-日本.txt"
"""The name of a file as agents write it, in UTF-8."""


@pytest.fixture(scope="session")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the locales that few machines have."""
    if not (_SOURCES.is_dir() and shutil.which("localedef")):
        skip_or_fail("the sources of locales are not here: apt-get install locales", "REQUIRE_LOCALES")
    directory = tmp_path_factory.mktemp("locales")
    for name in (LOCALES["ISO-8859-1"], LOCALES["EUC-JP"]):
        language, _, encoding = name.partition(".")
        subprocess.run(
            ("localedef", "-c", "-f", encoding, "-i", language, directory / name),
            capture_output=True,
            check=False,  # it warns by its status
        )
        assert (directory / name / "LC_CTYPE").exists()
    return directory


@pytest.fixture(params=LOCALES)
def in_locale(request: pytest.FixtureRequest, locales: Path) -> Run:
    """Return what runs the program in a locale."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))
    }
    named = LOCALES[request.param]
    env = {**kept, "LOCPATH": os.fspath(locales), **({"LC_ALL": named} if named else {})}

    def run(project: Path, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, cwd=project, env=env, capture_output=True, check=False)

    seen = run(locales, sys.executable, "-c", "import locale; print(locale.nl_langinfo(locale.CODESET))")
    wanted = {"C": b"ANSI_X3.4-1968", "unset": b"UTF-8"}.get(request.param, request.param.encode())  # PEP 538
    assert seen.stdout.strip() == wanted
    return run


def _only_session(repo: Repo) -> str:
    [branch] = [name for name in repo.branches() if name.startswith("ralph/") and not name.endswith("-wip")]
    return branch.removeprefix("ralph/")


def test_a_name_in_utf_8_is_saved_and_applied(repo: Repo, in_locale: Run) -> None:
    """The same bytes come back, and every command shows them."""
    script = f"echo new > '{NAME}'; echo more >> file.txt"
    ended = in_locale(
        repo.path, PROGRAM, "run", "-n", "1", "--isolation", "require", "--", "sh", "-c", script
    )
    assert ended.returncode == 0, ended.stderr
    agent = _only_session(repo)
    tree = repo.git("ls-tree", "-z", "--name-only", f"ralph/{agent}-wip").split("\0")
    assert NAME in tree
    shown = in_locale(repo.path, PROGRAM, "diff", "--saved", agent)
    assert (shown.returncode, b"+new\n" in shown.stdout) == (0, True), shown.stderr
    reviewed = in_locale(repo.path, PROGRAM, "review")
    assert reviewed.returncode == 0, reviewed.stderr
    applied = in_locale(repo.path, PROGRAM, "apply", agent)
    assert (applied.returncode, NAME.encode() in applied.stdout) == (0, True), applied.stderr
    assert (repo.path / NAME).read_text() == "new\n"


def test_a_commit_with_such_a_name_lands(repo: Repo, in_locale: Run) -> None:
    """By a merge that writes the user's checkout."""
    script = f"echo new > '{NAME}'; git add -A; git commit -qm '{NAME}'"
    ended = in_locale(repo.path, PROGRAM, "run", "-n", "1", "--", "sh", "-c", script)
    assert ended.returncode == 0, ended.stderr
    repo.git("stash", "-uq")  # the line in .gitignore
    landed = in_locale(repo.path, PROGRAM, "merge", _only_session(repo))
    assert landed.returncode == 0, landed.stderr
    assert (repo.path / NAME).read_text() == "new\n"
    assert repo.git("status", "--porcelain") == ""


def test_a_project_with_such_a_name(tmp_path: Path, in_locale: Run) -> None:
    """Its sessions are isolated, and found again."""
    repo = make_repo(tmp_path / NAME)
    ended = in_locale(repo.path, PROGRAM, "run", "-n", "1", "--isolation", "require", "--", "pwd")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(os.fsencode(repo.path / ".ralph" / "worktrees"))
    listed = in_locale(repo.path, PROGRAM, "ps", "--all")
    assert (listed.returncode, _only_session(repo).encode() in listed.stdout) == (0, True), listed.stderr


def test_a_name_that_is_no_utf_8(repo: Repo, in_locale: Run) -> None:
    """Neither is it of another encoding; the same bytes come back."""
    name = b"odd-\xff\x8f\xa1-\xe9.txt"
    ended = in_locale(repo.path, PROGRAM, "run", "-n", "1", "--", "sh", "-c", b"echo new > '" + name + b"'")
    assert ended.returncode == 0, ended.stderr
    applied = in_locale(repo.path, PROGRAM, "apply", _only_session(repo))
    assert applied.returncode == 0, applied.stderr
    assert name in [os.fsencode(path.name) for path in repo.path.iterdir()]


def test_the_agent_has_the_locale_of_the_user(repo: Repo, in_locale: Run) -> None:
    """Only the program itself decodes names in its own way."""
    before = in_locale(repo.path, "sh", "-c", "echo $LC_ALL $PYTHONUTF8")
    ended = in_locale(repo.path, PROGRAM, "run", "-n", "1", "--", "sh", "-c", "echo $LC_ALL $PYTHONUTF8")
    assert ended.stdout == before.stdout


def test_the_library_refuses_a_locale_that_it_cannot_work_in(locales: Path) -> None:
    """It cannot start its Python again; the error names the option."""
    env = {**os.environ, "LOCPATH": os.fspath(locales), "LC_ALL": LOCALES["ISO-8859-1"]}
    words = (sys.executable, "-c", "from ralph_wrap import Session")
    refused = subprocess.run(words, env=env, capture_output=True, check=False, text=True)
    assert (refused.returncode, "start Python with -X utf8" in refused.stderr) == (1, True)
    subprocess.run((sys.executable, "-X", "utf8", *words[1:]), env=env, check=True)
