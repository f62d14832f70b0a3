"""Becoming the owner of the project, for good, with a home directory that can be used."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.session import preflight
from ralph_wrap.state import project
from ralph_wrap.system import privileges
from tests.support.needs import CAPABILITY_DROPS, OTHER_USERS, needs, needs_other_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo

UID, GID = 54321, 54322
"""A user without a passwd entry."""

CHILD = """
import json, os, sys, tempfile
from pathlib import Path
from ralph_wrap import errors
from ralph_wrap.system import privileges
privileges.HOMES = Path(sys.argv[2])
before = int(sys.argv[3])
os.setresuid(before, before, before)
try:
    environ = privileges.become_owner(Path(sys.argv[1]), os.environ)
    if sys.argv[4] == "ensure":
        environ = privileges.ensure_home(environ)
        Path(environ["HOME"], "mine").touch()
except errors.RalphError as error:
    print(json.dumps({"message": error.message, "hint": error.hint}))
    sys.exit()
names = ("HOME", "USER", "LOGNAME", "KEPT")
found = {name: environ[name] for name in names if name in environ}
found |= {"uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups())}
try:
    os.setuid(0)
except PermissionError:
    found["for good"] = True
print(json.dumps(found))
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory that everybody can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="test-user-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def temporary(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for temporary files, also that of children."""
    path = directory / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    monkeypatch.setenv("TMPDIR", str(path))
    return path


@pytest.fixture
def homes(directory: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place for homes as the image makes it, and keep tests out of the machine's own."""
    assert temporary.is_dir()
    path = directory / "homes"
    path.mkdir()
    path.chmod(0o1777)
    monkeypatch.setattr(privileges, "HOMES", path)
    return path


def _become(
    project: Path, *under: str, start_as: int = 0, step: str = "ensure", **environ: str
) -> dict[str, Any]:
    """Let a child become the owner of a project, with a home made or not, and return its identity then."""
    places = (os.fspath(project), os.fspath(project.with_name("homes")))
    argv = (*under, sys.executable, "-c", CHILD, *places, str(start_as), step)
    variables = {"USER": "root", "LOGNAME": "root", "KEPT": "yes", **environ}
    done = subprocess.run(argv, env={**os.environ, **variables}, capture_output=True, check=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _owned(path: Path, uid: int, gid: int) -> Path:
    path.mkdir()
    os.chown(path, uid, gid)
    return path


def _owner(path: Path) -> tuple[int, int, int]:
    """Return user, group and permissions of a directory."""
    found = path.lstat()
    return found.st_uid, found.st_gid, found.st_mode & 0o7777


# The owner


@needs_other_users
def test_root_becomes_the_owner_for_good(directory: Path, homes: Path) -> None:
    """User, group and no other group; names of root are gone; a home that can be written is made."""
    project = _owned(directory / "project", UID, GID)
    assert _become(project, HOME="/root") == {
        "HOME": str(homes / str(UID)),
        "KEPT": "yes",
        "uids": [UID] * 3,
        "gids": [GID] * 3,
        "groups": [GID],
        "for good": True,
    }
    assert _owner(homes / str(UID) / "mine")[:2] == (UID, GID)


@needs_other_users
def test_an_owner_with_a_name_gets_it(directory: Path, homes: Path) -> None:
    """And the groups of the same name, beside the group of the project."""
    entry = pwd.getpwnam("nobody")
    project = _owned(directory / "project", entry.pw_uid, GID)
    assert _become(project, HOME="/root") == {
        "HOME": str(homes / str(entry.pw_uid)),
        "USER": "nobody",
        "LOGNAME": "nobody",
        "KEPT": "yes",
        "uids": [entry.pw_uid] * 3,
        "gids": [GID] * 3,
        "groups": sorted({GID, *os.getgrouplist("nobody", entry.pw_gid)}),
        "for good": True,
    }


@needs_other_users
def test_a_project_of_root_is_worked_on_as_root(directory: Path) -> None:
    """There is no other user to become."""
    project = _owned(directory / "project", 0, 0)
    found = _become(project, HOME=str(directory))
    expected = ([0] * 3, [0] * 3, str(directory), "root", sorted(os.getgroups()))
    assert (found["uids"], found["gids"], found["HOME"], found["USER"], found["groups"]) == expected
    assert "for good" not in found


@needs_other_users
def test_a_user_other_than_root_stays_the_same(directory: Path) -> None:
    """In a project of any owner."""
    project = _owned(directory / "project", UID + 1, GID)
    home = _owned(directory / "home", UID, GID)
    found = _become(project, start_as=UID, HOME=str(home))
    assert (found["uids"], found["HOME"]) == ([UID] * 3, str(home))


@needs(OTHER_USERS, CAPABILITY_DROPS)
def test_a_refused_change_of_user_is_an_error(directory: Path, homes: Path, temporary: Path) -> None:
    """A container without capabilities; no half-made home is left."""
    project = _owned(directory / "project", UID, GID)
    helpless = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    assert _become(project, *helpless, HOME="/root") == {
        "message": f"cannot become user id {UID}, the owner of {project}: Operation not permitted",
        "hint": f"docker run --user {UID}:{GID}, or with the capabilities CHOWN, SETUID and SETGID",
    }
    assert sorted(directory.rglob("*")) == [homes, project, temporary]


# The home


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("usable", True), ("absent", False), ("file", False), ("", False), (None, False)],
)
def test_my_home_is_the_given_one_or_that_of_my_name(
    tmp_path: Path, homes: Path, given: str | None, is_kept: object
) -> None:
    """If the given one can be used; without one it is never ``/``, where root could write."""
    (tmp_path / "usable").mkdir()
    (tmp_path / "file").touch()
    path = str(tmp_path / given) if given else given
    environ = {"KEPT": "yes"} if path is None else {"KEPT": "yes", "HOME": path}
    home = path if is_kept else pwd.getpwuid(os.getuid()).pw_dir
    chosen = privileges.with_home(environ)
    assert chosen == privileges.ensure_home(chosen) == {"KEPT": "yes", "HOME": home}
    assert list(homes.iterdir()) == []


@needs_other_users
def test_another_users_own_home_is_kept(directory: Path) -> None:
    """It belongs to the user that we are about to become."""
    project = _owned(directory / "project", UID, GID)
    home = _owned(directory / "home", UID, GID)
    assert _become(project, step="choose", HOME=str(home))["HOME"] == str(home)


def test_a_home_that_is_not_one_of_ours_is_not_made(tmp_path: Path, homes: Path) -> None:
    """If HOME names an absent directory, it stays absent."""
    environ = {"HOME": str(tmp_path / "absent")}
    assert privileges.ensure_home(environ) == environ
    assert not (tmp_path / "absent").exists()
    assert list(homes.iterdir()) == []


@needs_other_users
def test_becoming_the_owner_makes_nothing(directory: Path, homes: Path, temporary: Path) -> None:
    """A run that is refused afterwards leaves no trace; the home is only chosen."""
    project = _owned(directory / "project", UID, GID)
    assert _become(project, step="choose", HOME="/root")["HOME"] == str(homes / str(UID))
    assert sorted(directory.rglob("*")) == [homes, project, temporary]


@needs_other_users
@pytest.mark.parametrize("given", ["/root", "/", "/nonexistent", ""])
@pytest.mark.parametrize("image", [True, False], ids=["in the image", "elsewhere"])
def test_a_home_is_made_once(
    directory: Path, homes: Path, temporary: Path, given: str, *, image: bool
) -> None:
    """For a user without one: a private directory, found again later, also without the image's place."""
    project = _owned(directory / "project", UID, GID)
    if not image:
        homes.rmdir()
    home = homes / str(UID) if image else temporary / f"ralph-wrap-home-{UID}"
    assert _become(project, HOME=given)["HOME"] == str(home)
    assert _owner(home) == (UID, GID, 0o700)
    (home / "settings").touch()
    assert _become(project, HOME=given)["HOME"] == str(home)
    assert sorted(path.name for path in home.iterdir()) == ["mine", "settings"]
    assert list(home.parent.iterdir()) == [home]


def _directory(directory: Path, _lure: Path) -> None:
    directory.mkdir()


def _file(directory: Path, _lure: Path) -> None:
    directory.touch()


def _own_file(directory: Path, _lure: Path) -> None:
    directory.touch()
    os.chown(directory, UID, GID)


def _symlink(directory: Path, lure: Path) -> None:
    directory.symlink_to(lure)


def _dangling_symlink(directory: Path, lure: Path) -> None:
    directory.symlink_to(lure / "absent")


@needs_other_users
@pytest.mark.parametrize(
    "trap",
    [_directory, _file, _own_file, _symlink, _dangling_symlink],
    ids=lambda trap: trap.__name__.strip("_"),
)
@pytest.mark.parametrize("image", [True, False], ids=["in the image", "elsewhere"])
def test_a_directory_of_another_user_is_no_home(
    directory: Path, homes: Path, temporary: Path, trap: Callable[[Path, Path], None], *, image: bool
) -> None:
    """The user who made it could read every file in it; another one is made, and nothing in it."""
    project, lure = _owned(directory / "project", UID, GID), _owned(directory / "lure", UID, GID)
    if not image:
        homes.rmdir()
    trapped = homes / str(UID) if image else temporary / f"ralph-wrap-home-{UID}"
    trap(trapped, lure)
    before = _owner(trapped)
    home = Path(_become(project, HOME="/root")["HOME"])
    assert home.parent == temporary
    assert home.name.startswith(f"ralph-wrap-home-{UID}{'' if image else '-'}")
    assert _owner(home) == (UID, GID, 0o700)
    assert list(lure.iterdir()) == []
    assert _owner(trapped) == before
    assert not trapped.is_dir() or list(trapped.iterdir()) == []


@needs_other_users
def test_a_place_for_homes_that_cannot_be_written_is_none(
    directory: Path, homes: Path, temporary: Path
) -> None:
    """It was made without the permissions that the image gives it."""
    project = _owned(directory / "project", UID, GID)
    homes.chmod(0o755)
    home = Path(_become(project, HOME="/root")["HOME"])
    assert (home.parent, _owner(home)) == (temporary, (UID, GID, 0o700))


@needs_other_users
def test_without_any_name_a_home_is_made_by_the_user_himself(directory: Path, homes: Path) -> None:
    """``docker run --user``: nobody was root, HOME is ``/``, and the image has a place for homes."""
    project = _owned(directory / "project", UID, GID)
    found = _become(project, start_as=UID, HOME="/")
    assert (found["HOME"], found["uids"]) == (str(homes / str(UID)), [UID] * 3)
    assert _owner(homes / str(UID)) == (UID, 0, 0o700)


NOBODY = dict.fromkeys(privileges.FALLBACK_IDENTITY, "")
SOMEBODY = dict.fromkeys(privileges.FALLBACK_IDENTITY, "Somebody")


@pytest.mark.parametrize(
    ("given", "configured", "known", "asked"),
    [
        (SOMEBODY, False, True, False),
        ({}, True, True, False),
        ({"GIT_AUTHOR_NAME": "Somebody"}, True, True, False),
        ({"GIT_AUTHOR_NAME": "Somebody"}, False, False, True),
        (SOMEBODY | {"GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"}, False, True, True),
        (SOMEBODY | {"GIT_COMMITTER_DATE": "one day"}, True, False, True),
        (NOBODY, True, False, True),
        ({}, False, False, True),
    ],
)
def test_git_is_asked_for_the_identity_only_where_it_is_not_plain(
    repo: Repo, tmp_path: Path, given: dict[str, str], configured: bool, known: bool, asked: bool
) -> None:
    """A start does not wait for an answer that environment and configuration give."""
    repo.git("config", "user.useConfigOnly", "true")
    if configured:
        repo.git("config", "user.name", "Somebody")
        repo.git("config", "user.email", "somebody@example.invalid")
    trace = tmp_path / "trace"
    world = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_A", "GIT_COM"))}
    environ = {**world, **given, "GIT_TRACE": os.fspath(trace)}
    found_project = project.find_project(repo.path, environ)
    assert preflight.committer(found_project) == ({} if known else privileges.FALLBACK_IDENTITY)
    assert ("GIT_COMMITTER_IDENT" in trace.read_text()) is asked


def test_the_stand_in_for_an_identity_satisfies_git() -> None:
    """Where it knows neither a name nor an e-mail address."""
    unknown = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    asked = ("git", "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
    done = subprocess.run(
        asked, env={**unknown, **privileges.FALLBACK_IDENTITY}, capture_output=True, check=True, text=True
    )
    assert done.stdout.startswith("ralph-wrap <ralph-wrap@localhost> ")
