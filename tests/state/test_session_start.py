"""How a session was started, and whether the session itself wrote that."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.project import find_project
from ralph_wrap.state.session_start import START, SessionStart, is_signed, read, relative, signature, write

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.state.project import Project
    from tests.support.repo import Repo

BEGUN = SessionStart({"prompt": "do it", "sparse": "a\nb"}, ("./agent.sh", "--fast"), "sub")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a session."""
    path = tmp_path / "session"
    path.mkdir()
    return path


def _project(repo: Repo, tmp_path: Path, **env: str) -> Project:
    return find_project(repo.path, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), **env})


def _key(tmp_path: Path) -> Path:
    return tmp_path / "home/.local/state/ralph-wrap/key"


def test_a_written_start_is_read(repo: Repo, tmp_path: Path, directory: Path) -> None:
    """It is genuine; the key belongs to its user alone."""
    project = _project(repo, tmp_path)
    write(BEGUN, directory, project)
    assert read(directory, project) == (BEGUN, True)
    assert stat.S_IMODE(_key(tmp_path).stat().st_mode) == 0o600


def test_one_key_signs_all(repo: Repo, tmp_path: Path, directory: Path) -> None:
    """A second session makes no other one."""
    project = _project(repo, tmp_path)
    write(BEGUN, directory, project)
    before = _key(tmp_path).read_bytes()
    write(BEGUN._replace(directory="."), directory, project)
    assert _key(tmp_path).read_bytes() == before


def test_a_place_for_keys_that_leads_nowhere_proves_nothing(
    repo: Repo, tmp_path: Path, directory: Path
) -> None:
    """An agent has made a loop of symlinks there. The session still writes its start, and its report."""
    project = _project(repo, tmp_path)
    state = _key(tmp_path).parents[1]
    state.parent.mkdir(parents=True)
    state.symlink_to(state.name)
    write(BEGUN, directory, project)
    assert read(directory, project) == (BEGUN, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"do it"', '"do evil"'), ("./agent.sh", "./evil.sh"), ('"sub"', '".."'), ("--fast", "--slow")],
)
def test_each_change_is_seen(repo: Repo, tmp_path: Path, directory: Path, old: str, new: str) -> None:
    """Whichever part an agent rewrites."""
    project = _project(repo, tmp_path)
    write(BEGUN, directory, project)
    path = directory / START
    path.write_text(path.read_text().replace(old, new))
    found = read(directory, project)
    assert found is not None
    assert not found.is_genuine


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_key_that_others_can_use_proves_nothing(
    repo: Repo, tmp_path: Path, directory: Path, mode: int
) -> None:
    """They could have signed."""
    project = _project(repo, tmp_path)
    write(BEGUN, directory, project)
    _key(tmp_path).chmod(mode)
    found = read(directory, project)
    assert found is not None
    assert not found.is_genuine


def test_a_key_in_the_project_is_not_made(repo: Repo, tmp_path: Path, directory: Path) -> None:
    """Its agents could read it."""
    project = _project(repo, tmp_path, XDG_STATE_HOME=str(repo.path / "state"))
    write(BEGUN, directory, project)
    assert not (repo.path / "state").exists()
    found = read(directory, project)
    assert found is not None
    assert not found.is_genuine


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        '{"version": 1, "options": [], "command": [], "directory": ".", "signature": ""}',
        '{"version": 1, "options": {}, "command": "rm", "directory": ".", "signature": ""}',
        '{"version": 1, "options": {}, "command": [1], "directory": ".", "signature": ""}',
        '{"version": 1, "options": {"prompt": null}, "command": [], "directory": ".", "signature": ""}',
    ],
)
def test_a_damaged_file_says_nothing(repo: Repo, tmp_path: Path, directory: Path, content: str) -> None:
    """It is as good as none."""
    (directory / START).write_text(content)
    assert read(directory, _project(repo, tmp_path)) is None


def test_paths_in_the_project_can_move_with_it(repo: Repo, tmp_path: Path) -> None:
    """Others are absolute."""
    project = _project(repo, tmp_path)
    assert relative(repo.path / "sub" / "task.md", project) == "sub/task.md"
    assert relative(tmp_path / "task.md", project) == str(tmp_path / "task.md")


def test_a_signature_holds_for_one_kind(repo: Repo, tmp_path: Path) -> None:
    """One key signs several kinds of files, and the values of two kinds may be the same."""
    project = find_project(repo.path, os.environ)
    signed = signature("check", ["value"], tmp_path, project)
    kinds = [kind for kind in ("check", "end") if is_signed(kind, ["value"], tmp_path, project, signed)]
    assert kinds == ["check"]
    assert not is_signed("check", ["value"], tmp_path, project, None)
