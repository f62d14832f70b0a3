"""Change from root to the owner of the project, with a home directory and an identity for commits.

A container starts as root, and then becomes the owner of the mounted project. There are three reasons. Files
of root in a mount belong to root on the host. Git refuses a repository of another owner. Some agents refuse
to run as root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.system import files, temporary

HOMES = Path("/var/lib/ralph-wrap/home")
"""Directory for the homes of users without a passwd entry; the image creates it, sticky and writable."""

_TEMPORARY = "ralph-wrap-home-"  # and the user id

FALLBACK_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "ralph-wrap"), ("EMAIL", "ralph-wrap@localhost"))
}
"""Author and committer of commits if git has none."""


def become_owner(project: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Give up root for ever if the project belongs to another user.

    Arguments:
        project: a directory; if it does not exist, nothing changes.

    Returns:
        The environment of the new user. Its ``HOME`` is writable, or :func:`ensure_home` can create it.

    Raises:
        RalphError: the change was refused; the project has not been touched.

    """
    # A sub-directory may have another owner than its repository.
    project = project.resolve()
    root = next((path for path in (project, *project.parents) if (path / ".git").exists()), project)
    if os.geteuid() != 0 or not root.exists() or root.stat().st_uid == 0:
        return with_home(environ)
    uid, gid = root.stat().st_uid, root.stat().st_gid
    try:
        return _become(uid, gid, environ)
    except OSError as error:
        raise RalphError(
            f"cannot become user id {uid}, the owner of {root}: {error.strerror}",
            f"docker run --user {uid}:{gid}, or with the capabilities CHOWN, SETUID and SETGID",
        ) from error


def _become(uid: int, gid: int, environ: Mapping[str, str]) -> dict[str, str]:
    changed = {name: value for name, value in environ.items() if name not in {"USER", "LOGNAME"}}
    groups, homes = {gid}, {HOMES / str(uid)}
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(uid)
        groups |= {*os.getgrouplist(entry.pw_name, entry.pw_gid)}
        homes.add(Path(entry.pw_dir))
        changed |= {"USER": entry.pw_name, "LOGNAME": entry.pw_name}
    for home in homes:
        with contextlib.suppress(OSError):  # a read-only root, for example; ensure_home says what that means
            _give_directories_of_mounts(home, uid, gid)
    os.setgroups(sorted(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    return with_home(changed)


def _give_directories_of_mounts(home: Path, uid: int, gid: int) -> None:
    """Give a home to its user if the container engine made it, as root, to mount something in it.

    With ``-v ~/.claude:/var/lib/ralph-wrap/home/1000/.claude`` the engine makes the directories above the
    mount point. They hold nothing else then, and would be the home of nobody.
    """
    mounted = set(map(Path, files.mounts_in(home)))
    above = {parent for point in mounted for parent in point.parents if parent.is_relative_to(home)} - mounted
    if all(_was_made_for_mounts(path, mounted | above) for path in above):
        for path in above:
            os.chown(path, uid, gid, follow_symlinks=False)


def _was_made_for_mounts(directory: Path, expected: set[Path]) -> bool:
    return directory.lstat().st_uid == 0 and expected.issuperset(directory.iterdir())


def with_home(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with a ``HOME`` that this user can write, or that must still be created."""
    uid = os.geteuid()
    homes = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        homes.append(pwd.getpwuid(uid).pw_dir)
    usable = next(filter(_is_usable, homes), None)
    return {**environ, "HOME": usable or os.fspath(_home_to_make(environ, uid))}


def _home_to_make(environ: Mapping[str, str], uid: int) -> Path:
    if HOMES.is_dir():
        return HOMES / str(uid)
    return next(temporary.candidates(environ)) / f"{_TEMPORARY}{uid}"


def _is_usable(home: str) -> bool:
    # Unlike pathlib, false where we may not look.
    return os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)  # noqa: PTH112


def state_home(environ: Mapping[str, str]) -> Path:
    """Return the directory for a user's data outside of projects (XDG base directory specification)."""
    given = Path(environ.get("XDG_STATE_HOME") or "")
    if not given.is_absolute():  # the specification says: ignore a relative path
        given = Path(environ.get("HOME") or "/", ".local/state")
    return given / "ralph-wrap"


class HomeChoice(NamedTuple):
    """The home of a session.

    Attributes:
        path: the directory.
        is_new: it does not exist yet.
        problem: why it is a temporary directory; empty if it is none.
        hint: what to do about that.

    """

    path: Path
    is_new: bool = False
    problem: str = ""
    hint: str = ""


def choose_home(environ: Mapping[str, str], outside: Collection[Path] = ()) -> HomeChoice:
    """Return the home that :func:`ensure_home` would make, and make nothing.

    Arguments:
        outside: directories in which nothing may be made, resolved: an agent would commit its login.

    Raises:
        RalphError: no directory can be the home.

    """
    given, uid = Path(environ.get("HOME", "")), os.geteuid()
    documented, name = HOMES / str(uid), f"{_TEMPORARY}{uid}"
    if given != documented and given.name != name:
        return HomeChoice(given)
    reasons = []
    if HOMES.is_dir():
        try:
            return HomeChoice(documented, is_new=_is_absent(documented, uid))
        except OSError as error:
            if files.mounts_in(documented):
                raise _unusable_mount(documented, error) from None
            reasons.append((documented, error))
    problem = f"user id {uid} has no home directory{temporary.told(reasons)}"
    hint = (
        f"docker run -v DIRECTORY:{documented}" if HOMES.is_dir() else "set HOME to a directory of this user"
    )
    for directory in temporary.candidates(environ, outside):
        try:
            path, is_new = _temporary_home(directory / name, uid)
        except OSError as error:
            reasons.append((directory, error))
            continue
        problem += f"; HOME is {path}, and what an agent keeps there is lost with the temporary files"
        return HomeChoice(path, is_new, problem, hint)
    raise RalphError(
        f"user id {uid} has no home directory, and none can be made{temporary.told(reasons)}",
        temporary.way_out(reasons),
    )


def _temporary_home(path: Path, uid: int) -> tuple[Path, bool]:
    try:
        return path, _is_absent(path, uid)
    except PermissionError:  # it could be a trap
        path = path.with_name(f"{path.name}-{os.urandom(4).hex()}")
        return path, _is_absent(path, uid)


def _is_absent(home: Path, uid: int) -> bool:
    """Return whether a home must be made.

    Raises:
        PermissionError: another user has made it, and could read every file in it.
        OSError: it cannot be made or written.

    """
    try:
        found = home.lstat()
    except FileNotFoundError:
        temporary.require_writable(home.parent)
        return True
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        raise PermissionError(errno.EPERM, f"not a directory of user id {uid}")
    if not _is_usable(os.fspath(home)):
        raise PermissionError(errno.EACCES, "cannot be written")
    return False


def _unusable_mount(home: Path, error: OSError) -> RalphError:
    points = ", ".join(files.mounts_in(home))
    return RalphError(
        f"{home} cannot be the home directory ({error.strerror}), so an agent would not find {points}",
        f"docker run -v DIRECTORY:{home}, where DIRECTORY belongs to user id {os.geteuid()}",
    )


def ensure_home(
    environ: Mapping[str, str],
    outside: Collection[Path] = (),
    say: Callable[[str, str], object] = lambda _message, _hint: None,
) -> dict[str, str]:
    """Create the ``HOME`` that :func:`with_home` chose, if it does not exist.

    Arguments:
        outside: directories in which nothing may be made, resolved.
        say: is told that the home is a temporary directory, and what to do about it.

    Raises:
        RalphError: no home directory can be created.

    """
    while (choice := choose_home(environ, outside)).is_new:
        with contextlib.suppress(FileExistsError):  # another session has just made it, or a trap
            choice.path.mkdir(mode=0o700)
            break
    if choice.problem:
        say(choice.problem, choice.hint)
    return {**environ, "HOME": os.fspath(choice.path)}
