"""Look at everything in a project's repository that makes plain git run, read or show something else.

The scan starts no process, needs no baseline and follows nothing. It takes some milliseconds. It begins at
the ``.git`` of the project root, not at what git says: a file ``commondir`` leads git to another repository.

It sees neither the user's own configuration outside the repository nor files of the checkout. It does not
see a repository that an agent makes in a directory of the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import pointer
from ralph_wrap.git.config_file import parse
from ralph_wrap.state.audit.configuration import look_at_configuration
from ralph_wrap.state.audit.finding import Finding, FindingKind
from ralph_wrap.state.audit.git_directory import look_at_git_directory, look_at_hooks, look_at_todo
from ralph_wrap.state.audit.reader import Reader
from ralph_wrap.state.project import RUN
from ralph_wrap.system import files

_DEEPEST = 12  # directories between .git/modules and a submodule's repository
_MARKS = ("HEAD", "config", "objects", "commondir")  # a directory with one of these may be a repository


class Scan(NamedTuple):
    """What a scan has seen.

    Attributes:
        findings: in the order of their places.
        contents: the content of each configuration, and of each file that is a finding, by shown path.

    """

    findings: tuple[Finding, ...]
    contents: Mapping[str, bytes]


def scan(root: Path, environ: Mapping[str, str]) -> Scan:
    """Look at the repository of a project.

    Arguments:
        root: the project root, resolved.
        environ: names the user's own configuration, which may give the directory of the hooks.

    """
    reader = Reader(os.fspath(root))
    git = root / ".git"
    if git.is_symlink() or not git.is_dir():
        reader.content(os.fspath(git), pointer.LONGEST)
    git_dir = pointer.git_dir_of(root)
    common = git_dir.parent.parent if git_dir.parent.name == "worktrees" else git_dir
    values = look_at_git_directory(reader, os.fspath(common), os.fspath(root) if common == git_dir else None)
    _look_at_project_hooks(reader, root, values.get("core.hookspath") or _hooks_of_user(environ))
    for entry in reader.plain_entries(os.fspath(common / "worktrees")):
        if entry.is_dir(follow_symlinks=False):
            _look_at_registration(reader, Path(entry.path), common, root)
    _look_at_submodules(reader, f"{common}/modules", root)
    return Scan(tuple(sorted(set(reader.findings), key=lambda found: found.title)), reader.contents)


# Hooks in the checkout


def _look_at_project_hooks(reader: Reader, root: Path, hooks_path: str | None) -> None:
    """Add the hooks in a directory of the project, to which core.hooksPath leads."""
    if not hooks_path or hooks_path.startswith("~"):
        return
    directory = os.path.realpath(os.path.join(root, hooks_path))  # noqa: PTH118 -- may hold anything
    if directory.startswith(f"{root}/") and not directory.startswith(f"{root}/.git/"):
        look_at_hooks(reader, directory)


def _hooks_of_user(environ: Mapping[str, str]) -> str | None:
    """Return the user's own ``core.hooksPath``; a relative one leads into each project."""
    home = environ.get("HOME", "")
    directory = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    given = environ.get("GIT_CONFIG_GLOBAL")
    value = None
    for path in [given] if given is not None else [f"{directory}/git/config", f"{home}/.gitconfig"]:
        try:
            entries = parse(files.read(Path(path)))
        except (OSError, ValueError):
            continue
        value = next((value for key, value in reversed(entries) if key == "core.hookspath"), value)
    return value


# Worktrees


def _look_at_registration(reader: Reader, registration: Path, common: Path, root: Path) -> None:
    names = {entry.name for entry in reader.plain_entries(os.fspath(registration))}
    for name in names & {"config", "objects"}:  # git would take the registration for a repository of its own
        reader.add(f"{registration}/{name}", FindingKind.POINTER)
    if "config.worktree" in names:
        look_at_configuration(reader, f"{registration}/config.worktree")
    if "commondir" in names:  # a new registration does not have it yet
        content = reader.content(f"{registration}/commondir", pointer.LONGEST)
        named = pointer.real(registration / os.fsdecode(content or b"").removesuffix("\n"))
        if content and content.strip() and named != common:
            reader.add(f"{registration}/commondir", FindingKind.COMMON_DIR, "", content)
    look_at_todo(reader, os.fspath(registration))
    _look_at_submodules(reader, f"{registration}/modules", root)
    checkout = _checkout_of(reader, registration, root)
    if checkout is not None:
        _look_at_pointer(reader, checkout, registration)


def _checkout_of(reader: Reader, registration: Path, root: Path) -> Path | None:
    """Return the checkout of a registration, which may have another path on this machine."""
    content = reader.content(f"{registration}/{pointer.BACK}", pointer.LONGEST)
    if not content or not content.strip():
        return None
    named = registration / os.fsdecode(content).removesuffix("\n").replace("\0", "?")
    ours = root / ".ralph/worktrees" / named.parent.name
    if not os.path.lexists(named.parent) and pointer.is_below_some_mount(content, ours, 3):
        return ours
    if "/.ralph/" in os.fspath(named) and not named.is_relative_to(root):
        return None  # a copy of a project still has the registrations of the original's sessions
    if named.is_relative_to(root / RUN):
        return None  # no user works there, and ralph-wrap looks at the owner before it uses one
    return named.parent


def _look_at_pointer(reader: Reader, checkout: Path, registration: Path) -> None:
    """Add the ``.git`` file of a checkout if it names another repository than its registration's."""
    path = checkout / ".git"
    if not os.path.lexists(path):
        return
    if path.is_dir() and not path.is_symlink():
        if path.resolve() != registration:
            reader.add(os.fspath(path), FindingKind.POINTER)
        return
    content = reader.content(os.fspath(path), pointer.LONGEST)
    if content is None:
        return
    named = pointer.git_dir_in(os.fsdecode(content), checkout)
    # Path.exists() raises an error for a name that is too long, and the agent may have written any.
    of_another_mount = not os.path.lexists(named) and named.parts[-2:] == registration.parts[-2:]
    if named != registration and not of_another_mount:
        reader.add(os.fspath(path), FindingKind.POINTER, "", content)


# Submodules


def _look_at_submodules(reader: Reader, path: str, root: Path, depth: int = 0) -> None:
    for entry in reader.plain_entries(path):
        if not entry.is_dir(follow_symlinks=False):
            continue
        if any(os.path.lexists(f"{entry.path}/{name}") for name in _MARKS):
            _look_at_submodule(reader, entry.path, root)
            _look_at_submodules(reader, f"{entry.path}/modules", root, depth + 1)
        elif depth < _DEEPEST:
            _look_at_submodules(reader, entry.path, root, depth + 1)
        else:
            reader.add(entry.path, FindingKind.TOO_MANY)


def _look_at_submodule(reader: Reader, path: str, root: Path) -> None:
    checkout = ""
    try:
        entries = dict(parse(files.read(Path(path, "config"))))
        checkout = os.path.realpath(os.path.join(path, entries.get("core.worktree") or ""))  # noqa: PTH118
    except (OSError, ValueError):
        pass
    belongs = checkout.startswith(f"{root}/") or pointer.git_dir_of(Path(checkout)) == Path(path)
    look_at_git_directory(reader, path, checkout if belongs else None)
    if belongs:
        _look_at_pointer(reader, Path(checkout), Path(path))
