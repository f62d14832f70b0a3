"""The bare repository of a hub, on a volume: what sessions may push, and what origin has.

``refs/hub/origin/`` has what origin had when hub and origin agreed last, by ref: ``refs/heads/x`` is
``refs/hub/origin/heads/x``. Clients may read it: a worker sees there that origin has its work. Only the hub
writes it. ``refs/hub/seen/`` has what origin has now. ``refs/hub/pushing/`` has what a push brings that may
not have been answered. ``refs/hub/refused/`` has a blob for each ref that origin refuses: the reason.
``refs/hub/kept/`` has commits that were deleted at origin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import ConflictError
from ralph_wrap.git import Git, decode, git_environment, run_git
from ralph_wrap.interfaces.fleet.remote import HUB_ORIGIN, HUB_REFUSED
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "project.git"
"""The name of the repository below the directory, and in its address."""

ORIGIN, SEEN, PUSHING = HUB_ORIGIN, "refs/hub/seen/", "refs/hub/pushing/"
REFUSED, KEPT = HUB_REFUSED, "refs/hub/kept/"
HUBS = "refs/ralph/hubs/"
"""At origin: each hub moves a ref of its own there with each push (:mod:`.mark`)."""

REMOTE = "origin"

_NAME_KEY = "ralph-wrap.hub"
_NAME_BYTES = 8
_OURS = ("refs/heads/ralph/", "refs/ralph/")
_HOOK = """\
#!/bin/sh
# Takes the refs of sessions and runs alone.
while read -r before after ref; do
  case $ref in
    refs/heads/ralph/?*|refs/ralph/?*) ;;
    *) echo "this hub takes refs/heads/ralph/* and refs/ralph/*, not $ref" >&2; exit 1 ;;
  esac
done
"""
_CONFIG = {
    "http.receivepack": "true",
    "http.getanyfile": "false",
    "receive.hideRefs": "refs/hub",
    "uploadpack.hideRefs": "refs/hub/seen",
    # Seconds between two signs of life, of 5 bytes each: clients count less than 1 byte a second as silence.
    "receive.keepAlive": "1",
    "uploadpack.keepAlive": "1",
    "core.logAllRefUpdates": "false",
    "core.fsync": "all",  # git before 2.36 ignores it
    "gc.auto": "6700",
}


def is_ours(ref: str) -> bool:
    """Return whether sessions and runs own a ref: those are pushed. All others come from origin alone."""
    return ref.startswith(_OURS)


def place_of(prefix: str, ref: str) -> str:
    """Return where a ref of origin is noted.

    Arguments:
        prefix: :data:`ORIGIN`, :data:`SEEN` or :data:`PUSHING`.

    """
    return prefix + ref.removeprefix("refs/")


class HubRepository(NamedTuple):
    """The repository, which this process has locked.

    Attributes:
        git: at the repository.
        name: of the hub; another volume has another one.
        lock: only one hub works on a volume.

    """

    git: Git
    name: str
    lock: files.FileLock


def open_repository(directory: Path, origin: str, environ: Mapping[str, str]) -> HubRepository:
    """Open the repository in a directory; it is made if it is missing.

    Arguments:
        origin: address of origin.
        environ: of the hub.

    Raises:
        ConflictError: another hub works on the directory.
        GitError: the repository is damaged.

    """
    directory.mkdir(parents=True, exist_ok=True)
    if (lock := files.try_lock(directory / "hub.lock")) is None:
        raise ConflictError(
            f"another hub works on {directory}", "one volume has one hub: give each a volume of its own"
        )
    path = directory / NAME
    path.mkdir(exist_ok=True)
    git = Git(path, git_environment(environ), git_dir=path)
    run_git(git, "init", "--quiet", "--bare", "--template=", "--", os.fspath(path))
    for key, value in {**_CONFIG, f"remote.{REMOTE}.url": origin}.items():
        run_git(git, "config", "--", key, value)
    (path / "hooks").mkdir(exist_ok=True)
    files.replace(path / "hooks/pre-receive", _HOOK.encode(), mode=0o755)
    return HubRepository(git, _name(git), lock)


def _name(git: Git) -> str:
    answer = run_git(git, "config", "--get", "--", _NAME_KEY, accept=(0, 1))
    if name := decode(answer.stdout).strip():
        return name
    name = os.urandom(_NAME_BYTES).hex()
    run_git(git, "config", "--", _NAME_KEY, name)
    return name
