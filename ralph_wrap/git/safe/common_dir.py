"""A directory that stands in for the common directory of a repository, without what runs programs.

An agent can write the repository, and git runs programs that its configuration names: filters, merge drivers,
signing programs. So our git works with another common directory (git(1): GIT_COMMON_DIR), outside of the
project. Objects, refs and registrations in it are links to those of the repository. Its configuration holds
the repository's harmless keys, and those that the user has approved. It has no hooks and no grafts. Of
``info/attributes`` it has what :mod:`ralph_wrap.git.safe.attributes` lets through.

What an agent writes into the repository's configuration later has no effect on a git that is running.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git.safe.attributes import counting_attributes
from ralph_wrap.git.safe.config_keys import PROGRAMS_OF_LFS, Effect, effect_of, is_of_git_lfs, pattern_of
from ralph_wrap.git.safe.entries import ConfigEntry, format_config, read_config
from ralph_wrap.system import files, privileges, temporary

_LINKS = ("objects", "refs", "packed-refs", "logs", "worktrees", "modules", "shallow", "info/exclude")
_OPTIONAL_LINKS = ("lfs", "reftable")
_LFS_STORAGE = "lfs.storage"
_LFS_REQUIRED = "filter.lfs.required"
EXTENSION = "extensions.worktreeconfig"
"""The key with which each checkout has a configuration of its own, too."""
OWN_CONFIG = "config.worktree"
"""The name of that file in the git directory of a checkout."""

_NO_HOME = "no directory of this user outside the project can be written"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# Our git fetches no missing object. Without these keys it takes a missing object for a damaged repository.
_REQUIRED = "filter.*.required"  # without the filter's program, git would add and check out nothing
_PARTIAL_CLONE = {"extensions.partialclone", "remote.*.partialclonefilter", "remote.*.promisor"}


class SafeCommonDirs:
    """Directories that stand in for common directories: for a repository and those of its submodules."""

    def __init__(
        self,
        environ: Mapping[str, str],
        common_dir: Path,
        *,
        checkout: Path,
        approved: Collection[ConfigEntry] = (),
        off: Sequence[ConfigEntry] = (),
    ) -> None:
        """Prepare nothing yet.

        Arguments:
            environ: names the user's directory for state.
            common_dir: of the repository, resolved.
            checkout: of the repository, resolved.
            approved: entries of its configuration that the user has approved.
            off: entries that would have an effect after an approval.

        """
        self.off = off
        self._environ = environ
        self._approved = {common_dir: approved}
        main_checkout = (common_dir.parent,) if common_dir.name == ".git" else ()
        self._outside = (checkout, common_dir, *main_checkout)
        self._made: dict[Path, Path] = {}
        self._has_own_config: dict[Path, bool] = {}

    def of(self, common_dir: Path) -> Path:
        """Return the directory that stands in for a common directory; the first call makes it.

        Raises:
            GitError: it cannot be made, or the configuration cannot be read.

        """
        if common_dir not in self._made:
            try:
                self._made[common_dir] = self._make(common_dir)
            except OSError as error:
                raise GitError("config", 128, f"fatal: {error.filename}: {error.strerror}") from error
        return self._made[common_dir]

    def approved_of(self, common_dir: Path) -> Collection[ConfigEntry]:
        """Return the entries of a repository's configuration that the user has approved."""
        return self._approved.get(common_dir, ())

    def config_of(self, git_dir: Path, common_dir: Path) -> Sequence[str]:
        """Return arguments for the harmless keys that a worktree has for itself (git-sparse-checkout(1))."""
        if not self._has_own_config.get(common_dir):
            return ()
        try:
            entries = read_config(git_dir / OWN_CONFIG)
        except (OSError, ValueError):
            return ()
        # In an argument the first "=" ends the key.
        return [
            word
            for key, value in entries
            if _is_harmless(ConfigEntry(key, value)) and "=" not in key
            for word in ("-c", key if value is None else f"{key}={value}")
        ]

    def _make(self, common_dir: Path) -> Path:
        approved = self.approved_of(common_dir)
        entries = configuration(common_dir)
        without_approval = harmless(entries)
        kept = [entry for entry in entries if entry in without_approval or entry in approved]
        extension = next((value for key, value in reversed(kept) if key == EXTENSION), "false")
        self._has_own_config[common_dir] = (extension or "true").lower() in {"true", "yes", "on", "1"}
        kept = [entry for entry in kept if entry.key != EXTENSION]
        optional = [name for name in _OPTIONAL_LINKS if (common_dir / name).is_dir()]
        if "lfs" not in optional and all(key != _LFS_STORAGE for key, _ in kept):
            kept.append(ConfigEntry(_LFS_STORAGE, os.fspath(common_dir / "lfs")))
        if _has_refs(common_dir):
            with contextlib.suppress(OSError):  # git cannot create it through a link
                (common_dir / "logs").mkdir(exist_ok=True)
        problems = []
        for home in self._homes():
            directory = home / _name(common_dir, bool(approved))
            try:
                home.mkdir(mode=0o700, parents=True, exist_ok=True)
                _require_private(home)
                (directory / "info").mkdir(mode=0o700, exist_ok=True, parents=True)
                for name in (*_LINKS, *optional):
                    _link(directory / name, common_dir / name)
                _write(directory / "config", format_config(kept))
                _write(directory / "info/attributes", counting_attributes(common_dir, approved))
            except OSError as error:
                problems.append((home, error))
            else:
                return directory
        raise GitError(
            "config", 128, f"fatal: {_NO_HOME}{temporary.told(problems)}", temporary.way_out(problems)
        )

    def require_home(self) -> Path:
        """Return where the directories are, or will be made; make nothing.

        Raises:
            RalphError: there is none.

        """
        problems = []
        for home in self._homes():
            try:
                above = next(path for path in (home, *home.parents) if os.path.lexists(path))
                if above == home:
                    _require_private(home)
                temporary.require_writable(above)
            except OSError as error:
                problems.append((home, error))
            else:
                return home
        raise RalphError(f"{_NO_HOME}{temporary.told(problems)}", temporary.way_out(problems))

    def _homes(self) -> Iterator[Path]:
        """Yield the directories of the user that are outside of the project."""
        state = privileges.state_home(self._environ) / "git"
        if not temporary.is_inside(state, self._outside):
            yield state
        for directory in temporary.candidates(self._environ, self._outside):
            yield directory / f"ralph-wrap-git-{os.geteuid()}"


def _require_private(home: Path) -> None:
    """Check that a directory is one that only this user can write.

    Raises:
        OSError: it is none.

    """
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError(errno.EPERM, "other users can write it", os.fspath(home))


def configuration(common_dir: Path) -> list[ConfigEntry]:
    """Return the entries of a repository's configuration.

    Raises:
        GitError: it cannot be read.

    """
    path = common_dir / "config"
    try:
        return read_config(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise GitError("config", 128, f"fatal: {path} cannot be read: {reason}") from error


def harmless(entries: Collection[ConfigEntry]) -> set[ConfigEntry]:
    """Return the entries that may stand in the configuration of our git without the user's approval.

    Arguments:
        entries: of one configuration; some count only together.

    """
    found = {entry for entry in entries if _is_harmless(entry)}
    of_lfs = [entry for entry in entries if entry.key in PROGRAMS_OF_LFS]
    if of_lfs and all(is_of_git_lfs(*entry) for entry in of_lfs):
        found.update(of_lfs, (entry for entry in entries if entry.key == _LFS_REQUIRED))
    return found


def _is_harmless(entry: ConfigEntry) -> bool:
    pattern = pattern_of(entry.key)
    return pattern != _REQUIRED and (effect_of(*entry) is Effect.HARMLESS or pattern in _PARTIAL_CLONE)


def _name(common_dir: Path, is_approved: bool) -> str:
    """Return a name for one repository at one path."""
    found = common_dir.stat()
    path = zlib.crc32(os.fsencode(common_dir))
    return f"{found.st_dev:x}-{found.st_ino:x}-{path:08x}{'-approved' if is_approved else ''}"


def _has_refs(common_dir: Path) -> bool:
    """Tell whether a repository has a ref; one without a commit has none, and stays as it is."""
    if (common_dir / "packed-refs").exists():
        return True
    return any(True for _ in files.files_below(common_dir / "refs"))


def _link(link: Path, target: Path) -> None:
    """Make a symlink, or correct one; other processes may do the same."""
    wanted = os.fspath(target)
    try:
        if os.fspath(link.readlink()) == wanted:
            return
    except OSError:
        with contextlib.suppress(FileExistsError):
            link.symlink_to(wanted)
            return
    temporary = link.with_name(f".{link.name}.{os.urandom(8).hex()}")
    temporary.symlink_to(wanted)
    temporary.rename(link)


def _write(path: Path, content: bytes) -> None:
    try:
        if files.read(path, 1 << 22) == content:
            return
    except OSError:
        pass
    files.replace(path, content, sync=False, mode=0o600)
