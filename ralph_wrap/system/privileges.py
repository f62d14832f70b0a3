"""Change from root to the owner of the project, with a home directory and an identity for commits.

A container starts as root, and then becomes the owner of the mounted project. There are three reasons. Files
of root in a mount belong to root on the host. Git refuses a repository of another owner. Some agents refuse
to run as root.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from ralph_wrap.errors import RalphError
from ralph_wrap.system import deferred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOMES = Path("/var/lib/ralph-wrap/home")
"""Directory for the homes of users without a passwd entry; the image creates it, sticky and writable."""

FALLBACK_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "ralph-wrap"), ("EMAIL", "ralph-wrap@localhost"))
}
"""Author and committer of commits if git has none."""


def become_owner(
    project: Path, environ: Mapping[str, str], before: Callable[[], object] = lambda: None
) -> dict[str, str]:
    """Give up root for ever if the project belongs to another user.

    Arguments:
        project: a directory; if it does not exist, nothing changes.
        before: called right before the change, while we can still read files of root.

    Returns:
        The environment of the new user. Its ``HOME`` is writable, or :func:`ensure_home` can create it.

    Raises:
        RalphError: the change was refused; the project has not been touched.

    """
    # A sub-directory may have another owner than its repository.
    project = project.resolve()
    root = next((path for path in (project, *project.parents) if (path / ".git").exists()), project)
    if os.geteuid() != 0 or not root.exists() or root.stat().st_uid == 0:
        return with_home(environ, os.geteuid())
    uid, gid = root.stat().st_uid, root.stat().st_gid
    before()
    try:
        return _become(uid, gid, environ)
    except OSError as error:
        raise RalphError(
            f"cannot become user id {uid}, the owner of {root}: {error.strerror}",
            f"docker run --user {uid}:{gid}, or with the capabilities CHOWN, SETUID and SETGID",
        ) from error


def _become(uid: int, gid: int, environ: Mapping[str, str]) -> dict[str, str]:
    changed = with_home(environ, uid)
    try:
        entry = pwd.getpwuid(uid)
        groups = sorted({gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)})
        changed |= {"USER": entry.pw_name, "LOGNAME": entry.pw_name}
    except KeyError:
        groups = [gid]
        changed = {name: value for name, value in changed.items() if name not in {"USER", "LOGNAME"}}
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    return changed


def with_home(environ: Mapping[str, str], uid: int) -> dict[str, str]:
    """Return the environment with a ``HOME`` that the user can write, or that must still be created."""
    given = Path(environ["HOME"]) if environ.get("HOME") else None
    try:
        of_user: Path | None = Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        of_user = None
    usable = next((home for home in (given, of_user) if home is not None and _is_usable(home, uid)), None)
    return {**environ, "HOME": str(usable or _candidates(uid)[0])}


def state_home(environ: Mapping[str, str]) -> Path:
    """Return the directory for a user's data outside of projects (XDG base directory specification)."""
    given = Path(environ.get("XDG_STATE_HOME") or "")
    if not given.is_absolute():  # the specification says: ignore a relative path
        given = Path(environ.get("HOME") or "/", ".local/state")
    return given / "ralph-wrap"


def ensure_home(environ: Mapping[str, str]) -> dict[str, str]:
    """Create the ``HOME`` that :func:`with_home` chose, if it does not exist.

    Raises:
        OSError: no home directory can be created.

    """
    home = Path(environ.get("HOME", ""))
    uid = os.geteuid()
    if home.name not in {str(uid), f"ralph-wrap-home-{uid}"} or home not in _candidates(uid):
        return dict(environ)
    try:
        home.mkdir(mode=0o700)
    except OSError:
        # A directory of another user with this name is not used: it could be a trap.
        if home.is_symlink() or not home.is_dir() or not _belongs_to(home, uid):
            home = Path(deferred.tempfile.mkdtemp(prefix=f"ralph-wrap-home-{uid}-"))
    return {**environ, "HOME": str(home)}


def _candidates(uid: int) -> list[Path]:
    """Return the candidates for the home of a user without one, the best first."""
    homes = [HOMES / str(uid)] if HOMES.is_dir() else []
    return [*homes, Path(deferred.tempfile.gettempdir(), f"ralph-wrap-home-{uid}")]


def _is_usable(home: Path, uid: int) -> bool:
    if uid == os.geteuid():
        return home.is_dir() and os.access(home, os.W_OK | os.X_OK)
    return _belongs_to(home, uid)


def _belongs_to(home: Path, uid: int) -> bool:
    try:
        return home.stat().st_uid == uid
    except OSError:
        return False
