"""A sandbox that is not possible is an error before anything is made; the documents name what it hides."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents import NAMES, known
from ralph_wrap.session.sandbox import launcher
from ralph_wrap.session.sandbox.reach import SECRETS
from tests.support.agent_script import TRUSTED
from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.repo import Repo

PAGE = (Path(__file__).parent.parent.parent / "docs/sandbox.md").read_text()
NO_NAMESPACES = "#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a directory with the few programs that a session needs, and no bubblewrap."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for name in ("git", "sh", "true", "env"):
        (directory / name).symlink_to(shutil.which(name) or "")
    return directory


@pytest.mark.parametrize(
    ("mode", "config", "fake", "problem"),
    [
        ("bwrap", "", "", "--sandbox bwrap: bubblewrap is not installed"),
        (
            "bwrap",
            "",
            NO_NAMESPACES,
            "--sandbox bwrap: bubblewrap makes no sandbox here: bwrap: No permissions",
        ),
        ("auto", 'sandbox_network = "none"', "", "--sandbox bwrap: bubblewrap is not installed"),
        ("auto", 'sandbox_write = ["/nowhere"]', "", "sandbox_write: /nowhere does not exist"),
    ],
)
def test_an_impossible_sandbox_is_an_error(
    repo: Repo, programs: Path, mode: str, config: str, fake: str, problem: str
) -> None:
    """No agent starts, and there is no worktree and no branch."""
    if fake:
        (programs / "bwrap").write_text(fake)
        (programs / "bwrap").chmod(0o755)
    repo.write(".ralph/config.toml", config)
    env = {**TRUSTED, "PATH": os.fspath(programs)}
    result = run(repo.path, "--sandbox", mode, "--", "true", env=env)
    assert (result.status, result.narration[-1]["message"]) == (125, problem)
    assert (repo.branches(), (repo.path / ".ralph/run").exists()) == (["main"], False)


@pytest.mark.skipif(launcher.landlock_abi() == 0, reason="this kernel has no Landlock")
def test_auto_takes_landlock_where_bubblewrap_fails(repo: Repo, programs: Path) -> None:
    """The session says what it cannot do."""
    result = run(repo.path, "-n", "1", "--sandbox", "auto", "--", "true", env={"PATH": os.fspath(programs)})
    assert result.status == 0, result.stderr
    assert [warning["event"] for warning in result.warnings] == ["sandbox.limited"]


def test_a_branch_without_a_directory_is_refused(repo: Repo) -> None:
    """The agent would have to write all of ``refs/heads``."""
    result = run(repo.path, "--sandbox", "auto", "--branch", "topic", "--", "true")
    assert (result.status, repo.branches()) == (125, ["main"])
    assert "refs/heads for branch 'topic'" in result.stderr


FAILS_AT = """#!/bin/sh
echo x >> {count}
case " {turns} " in *" $(wc -l < {count}) "*) echo "bwrap: no source path" >&2; exit 1;; esac
exec {bwrap} "$@"
"""


@pytest.mark.parametrize(("turns", "status"), [("2", 0), ("2 3", 125)])
def test_a_sandbox_that_fails_once_is_made_again(
    repo: Repo, tmp_path: Path, bwrap: str, turns: str, status: int
) -> None:
    """A file can go between the look at it and its mount. The first turn is the trial of bubblewrap."""
    fake = tmp_path / "bin/bwrap"
    fake.parent.mkdir()
    fake.write_text(FAILS_AT.format(count=tmp_path / "count", turns=turns, bwrap=shutil.which(bwrap)))
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    result = run(repo.path, "-n", "1", "--sandbox", bwrap, "--", "true", env=env)
    assert result.status == status, result.stderr
    assert ("the sandbox could not be made" in result.stderr) is (status != 0)


def test_the_page_lists_the_hidden_files() -> None:
    """A reader can check what is hidden."""
    listed = PAGE.split("<!-- hidden -->\n")[1].split("\n\n")[0]
    assert re.findall(r"`([^`]+)`", listed) == [*SECRETS]


def test_the_page_lists_the_files_of_agents() -> None:
    """Those that an agent keeps, finds empty, or gets a copy of."""
    rows = dict(re.findall(r"^\| `(\w+)`(.*)$", PAGE.split("## The agents' own files")[1], re.MULTILINE))
    for name in NAMES:
        first = next(iter(known(name).homes))
        words = (*first.kept, *first.fresh, *(f"~/{path}" for path in known(name).copied))
        found = re.findall(r"`([^`]+)`", rows.get(name, "").partition("|")[2])
        assert found == [*words], name
