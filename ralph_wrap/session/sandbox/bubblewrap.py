"""The command line of bubblewrap (``bwrap(1)``), made from what an agent can reach."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

EMPTIED = ("/tmp", "/var/tmp", "/run", "/var/run")  # noqa: S108 -- private directories of the sandbox hide these
"""Directories with the sockets and files of other programs; the agent finds them empty."""

_NAMESPACES = (
    "--die-with-parent",
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL"),  # bwrap leaves them to root otherwise
)
_WHOLE = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")

TRIAL = (*_NAMESPACES, *_WHOLE)
"""Options that fail where bubblewrap cannot make a sandbox."""

_IN_RUN = ("current-system", "booted-system", "opengl-driver")  # the programs of NixOS


class Reach(NamedTuple):
    """What an agent can reach. The paths are absolute and resolved; a later field overrides an earlier one.

    Attributes:
        visible: paths that it reads, although they are below :data:`EMPTIED` or ``/dev``.
        hidden: files and directories that it finds empty.
        writable: paths that it writes.
        read_only: paths below them that it only reads.
        fresh: directories that it finds empty, with the entries that the later fields name.
        entries: entries of such a directory, each with whether it writes the entry.
        copied: files of which it gets a copy.
        network: all, none, or the hosts.

    """

    visible: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    fresh: tuple[Path, ...] = ()
    entries: tuple[tuple[Path, bool], ...] = ()
    copied: tuple[Path, ...] = ()
    network: tuple[str, ...] = ("all",)


def options(reach: Reach, copies: Sequence[tuple[int, Path]]) -> list[str]:
    """Return the options of bubblewrap.

    Arguments:
        copies: a descriptor with the content of each copied file, and its path.

    """
    found = [*TRIAL]
    if reach.network != ("all",):
        found.append("--unshare-net")
    for directory in EMPTIED:
        if os.path.isdir(directory) and not os.path.islink(directory):  # noqa: PTH112, PTH114 -- a text is wanted
            found += ["--tmpfs", directory]
    found += _bound("--ro-bind", [*_needed_in_run(reach.network), *filter(_is_emptied, reach.visible)])
    for path in reach.hidden:
        found += _emptied(path)
    found += _bound("--bind", reach.writable)
    found += _bound("--ro-bind", reach.read_only)
    for path in reach.fresh:
        found += ["--tmpfs", os.fspath(path)]
    for path, is_writable in reach.entries:
        # Another run of the agent may have removed the entry since we saw it.
        found += _bound("--bind-try" if is_writable else "--ro-bind-try", [path])
    for descriptor, path in copies:
        found += ["--bind-data", str(descriptor), os.fspath(path)]
    return found


def _bound(option: str, paths: Iterable[Path | str]) -> list[str]:
    return [word for path in paths for word in (option, os.fspath(path), os.fspath(path))]


def _emptied(path: Path) -> list[str]:
    if path.is_dir():
        return ["--tmpfs", os.fspath(path), "--remount-ro", os.fspath(path)]
    return ["--ro-bind", os.devnull, os.fspath(path)]


def _is_emptied(path: Path) -> bool:
    return any(os.fspath(path).startswith(f"{directory}/") for directory in (*EMPTIED, "/dev"))


def _needed_in_run(network: tuple[str, ...]) -> list[str]:
    """Return what programs need of ``/run``: the addresses of name servers, and NixOS's programs."""
    names = os.path.realpath("/etc/resolv.conf")
    found = [names] if network == ("all",) and names.startswith("/run/") and os.path.exists(names) else []  # noqa: PTH110
    return [*found, *(path for name in _IN_RUN if os.path.exists(path := f"/run/{name}"))]  # noqa: PTH110
