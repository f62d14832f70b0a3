"""Where approvals are kept, and which are believed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.config import trust
from ralph_wrap.errors import RalphError
from tests.support.needs import needs_other_users
from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.config.approvals import SETUP, SH, answered, approval, refused, session

UID = 54321
"""Another user."""


# Where it is kept


def test_it_is_kept_privately_and_outside_the_project(app: Repo) -> None:
    """No other user may read or write it; nothing of it is left half-written."""
    path = approval(app)
    modes = [stat.S_IMODE(entry.stat().st_mode) for entry in (path, path.parent)]
    assert modes == [0o600, 0o700]
    assert [*path.parent.iterdir()] == [path]
    assert not path.is_relative_to(app.path)


def test_without_a_variable_it_is_below_home(app: Repo, tmp_path: Path) -> None:
    """Nor by one that is relative, which counts as none."""
    for given in ("", "state"):
        answered(app.path, XDG_STATE_HOME=given)
    assert len([*(tmp_path / "home" / ".local" / "state" / "ralph-wrap" / "trust").iterdir()]) == 1
    assert not (app.path / "state").exists()


@pytest.mark.parametrize("entry", [".ralph/state", ".", "link"])
def test_a_state_directory_inside_the_project_is_refused(app: Repo, entry: str) -> None:
    """An agent could write it; also by a symlink that leads there. Neither approved nor believed."""
    (app.path.parent / "link").symlink_to(app.path)
    state = os.fspath((app.path.parent if entry == "link" else app.path) / entry)
    for words in (("trust",), ("trust", "--show"), ("run", *SH, "true")):
        ended = command(*words, cwd=app.path, env={"XDG_STATE_HOME": state})
        assert (ended.status, "inside the project" in ended.stderr) == (125, True)
    assert not [*app.path.rglob("trust")]


def test_a_state_directory_that_cannot_be_written(app: Repo, tmp_path: Path) -> None:
    """Said, with what to do."""
    (tmp_path / "file").touch()
    ended = command("trust", cwd=app.path, env={"XDG_STATE_HOME": os.fspath(tmp_path / "file")})
    assert (ended.status, "cannot be written: Not a directory" in ended.stderr) == (125, True)
    assert "set XDG_STATE_HOME to a writable directory" in ended.stderr


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_others_can_write_is_not_believed(app: Repo, what: str) -> None:
    """They could have approved."""
    path = approval(app)
    target = path if what == "file" else path.parent
    target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IWOTH)
    assert refused(session(app))


@needs_other_users
def test_a_file_of_another_user_is_not_believed(app: Repo) -> None:
    """The owner's word counts."""
    path = approval(app)
    os.chown(path, UID, UID)
    assert refused(session(app))
    os.chown(path, 0, 0)
    assert session(app).status == 0


@needs_other_users
def test_root_approves_as_the_user_that_it_becomes(app: Repo) -> None:
    """In the project of another user: that user's state directory, and that user's word."""
    temporary = Path(tempfile.mkdtemp(prefix="test-trust-"))
    try:
        shutil.copytree(app.path, temporary / "app")
        (temporary / "state").mkdir()
        subprocess.run(("chown", "-R", f"{UID}:{UID}", temporary), check=True)
        state = {"XDG_STATE_HOME": os.fspath(temporary / "state"), "HOME": os.fspath(temporary)}
        assert refused(command("run", *SH, "test -e ready", cwd=temporary / "app", env=state))
        assert answered(temporary / "app", **state)["approved"]
        [path] = temporary.glob("state/ralph-wrap/trust/*")
        assert path.stat().st_uid == UID
        assert command("run", *SH, "test -e ready", cwd=temporary / "app", env=state).status == 0
    finally:
        shutil.rmtree(temporary)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_symlink_is_not_believed(app: Repo, tmp_path: Path, what: str) -> None:
    """It may lead to what others can write."""
    path = approval(app)
    target = path if what == "file" else path.parent
    target.rename(tmp_path / "moved")
    target.symlink_to(tmp_path / "moved")
    assert refused(session(app))


@pytest.mark.parametrize("what", ["file", "directory"])
def test_nothing_is_written_through_a_symlink(app: Repo, tmp_path: Path, what: str) -> None:
    """A file is replaced, a directory refused."""
    path = approval(app)
    outside = tmp_path / "outside"
    target = path if what == "file" else path.parent
    target.rename(tmp_path / "old")
    outside.mkdir() if what == "directory" else outside.touch()
    target.symlink_to(outside)
    ended = command("trust", cwd=app.path)
    assert (ended.status == 0) == (what == "file")
    assert (outside.stat().st_size == 0) if what == "file" else not [*outside.iterdir()]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 50_000,
        b'{"version": 1}',
        b'{"version": 2, "project": "PROJECT", "commands": COMMANDS}',
        b'{"version": 1, "project": "/", "commands": COMMANDS}',
        b'{"version": 1, "project": "PROJECT", "commands": {"setup": ""}}',
        b'{"version": 1, "project": "PROJECT", "commands": "setup"}',
    ],
)
def test_a_file_that_is_no_approval_approves_nothing(app: Repo, content: bytes) -> None:
    """Half-written, of a newer version, or for something else: asked again, never a crash."""
    path = approval(app)
    words = {b"PROJECT": os.fsencode(app.path), b"COMMANDS": json.dumps({"setup": SETUP}).encode()}
    for word, meant in words.items():
        content = content.replace(word, meant)
    path.write_bytes(content)
    assert trust.unapproved(app.path, {"setup": SETUP}, os.environ) == {"setup": SETUP}


def test_a_genuine_approval_approves(app: Repo) -> None:
    """The control of those above; keys that are not known do not matter."""
    path = approval(app)
    wanted = {"version": 1, "project": str(app.path), "commands": {"setup": SETUP}, "more": 1}
    path.write_text(json.dumps(wanted))
    assert not trust.unapproved(app.path, {"setup": SETUP}, os.environ)


def test_any_directory_can_be_a_project(tmp_path: Path) -> None:
    """Also one whose name no encoding has."""
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    trust.approve(root, {"setup": "x"}, os.environ)
    assert not trust.unapproved(root, {"setup": "x"}, os.environ)
    assert trust.unapproved(tmp_path / "other", {"setup": "x"}, os.environ)


def test_a_user_without_a_directory_to_write_to(tmp_path: Path) -> None:
    """A disk that is read-only, say: the error has a hint, and nothing is there."""
    state = tmp_path / "state"
    state.mkdir()
    environ = {"XDG_STATE_HOME": os.fspath(state / "ralph-wrap")}
    (state / "ralph-wrap").write_text("")
    with pytest.raises(RalphError, match="cannot be written"):
        trust.approve(tmp_path / "p", {"setup": "x"}, environ)
