"""Look a relative command of an agent up in the commit that its worktree starts from.

A worktree has only committed files, so a script that is not committed is missing in it. This module finds
that out before the session makes a worktree. It refuses only what cannot work: the setup command, copied
files and linked directories can add files to a worktree.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.config import Isolation
from ralph_wrap.errors import AgentError, AgentNotFoundError
from ralph_wrap.git import is_ignored, list_refs, object_modes
from ralph_wrap.loop.start_error import in_directory
from ralph_wrap.state.project import WORKTREES
from ralph_wrap.worktree.create.copy_ignored import INCLUDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralph_wrap.config import Settings
    from ralph_wrap.state.project import Project
    from ralph_wrap.worktree.layout import WorktreeLayout

_TOP = PurePosixPath()
_PLAIN = stat.S_IFREG | 0o644


def check(settings: Settings, project: Project, base: str, layout: WorktreeLayout) -> None:
    """Check that the worktree of a session will have the agent's command, if that is a relative path.

    Arguments:
        base: the commit to start from.
        layout: the part of it that the worktree will hold.

    Raises:
        AgentNotFoundError: the worktree will not have it.
        AgentError: the worktree will have it, and it cannot be run.

    """
    if settings.setup or _may_fall_back(settings, project) or os.path.lexists(project.checkout / ".GIT"):
        return  # in the last case, the file system takes A and a for the same name
    _Lookup.of(settings, project, base).require(layout)


def _may_fall_back(settings: Settings, project: Project) -> bool:
    """Return whether a worktree is perhaps impossible; the plain project root has all files."""
    own = project.root / ".ralph"
    top = next(path for path in (own, *own.parents) if path.is_dir())  # a bare repository's is made later
    return settings.isolation is Isolation.PREFER and not os.access(top, os.W_OK)


def _steps(start: PurePosixPath, program: str) -> Iterator[PurePosixPath | None]:
    """Yield each path on the way to a program, from the top level; ``None`` outside of the worktree."""
    reached: PurePosixPath | None = start
    for word in PurePosixPath(program).parts:
        if reached is not None:
            reached = reached / word if word != ".." else None if reached == _TOP else reached.parent
        yield reached


class _Lookup(NamedTuple):
    """The command of an agent, and the commit that should have it.

    Attributes:
        settings: of the session.
        project: of the session.
        commit: the worktree's files come from it.
        is_head: a new commit in the project's checkout changes what the worktree gets.
        modes: the modes of files and directories in the commit.

    """

    settings: Settings
    project: Project
    commit: str
    is_head: bool
    modes: Mapping[str, int]

    @classmethod
    def of(cls, settings: Settings, project: Project, base: str) -> _Lookup:
        """Read the modes of all paths that decide, by one git process."""
        commit = base
        if settings.branch is not None:
            ref = f"refs/heads/{settings.branch}"
            commit = list_refs(project.git, ref).get(ref, base)
        wanted = PurePosixPath(project.prefix)
        starts = [wanted, *wanted.parents]
        steps = {step for start in starts for step in _steps(start, settings.command[0]) if step is not None}
        paths = sorted(str(path) for path in {*starts, *steps} - {_TOP})
        head = project.repository.head if project.repository else None
        return cls(settings, project, commit, commit == head, object_modes(project.git, commit, paths))

    @property
    def program(self) -> str:
        """The command as the user wrote it."""
        return self.settings.command[0]

    @property
    def wanted(self) -> PurePosixPath:
        """The directory in which the user wants the agent to start."""
        return PurePosixPath(self.project.prefix)

    @property
    def start(self) -> PurePosixPath:
        """The directory in which the agent will start: the nearest one that is committed."""
        return next(path for path in (self.wanted, *self.wanted.parents) if self._is_directory(path))

    def require(self, layout: WorktreeLayout) -> None:
        """Raise an error if the command cannot work; return if it may."""
        if self._is_elsewhere(self.wanted) or (layout.sparse is not None and self.wanted != _TOP):
            return
        if self.start != self.wanted and self._may_come(self.wanted):
            return
        steps = [*_steps(self.start, self.program)]
        path = steps[-1]
        if path is None:
            self._require_outside()
            return
        if any(step is None or self._is_elsewhere(step) for step in steps):
            return
        mode = self._mode(path)
        if mode is None:
            if not self._may_come(path):
                raise self._not_found(path)
        elif self._is_directory(path):
            raise AgentError(f"agent command {self.program} cannot be run: it is a directory", "name a file")
        elif mode == _PLAIN and self.project.repository is not None and self.project.repository.file_mode:
            raise AgentError(
                f"agent command {self.program} cannot be run: it is not committed as an executable file",
                self._to_commit(f"chmod +x {shlex.quote(self.program)}", "Make it executable"),
            )

    def _mode(self, path: PurePosixPath) -> int | None:
        return self.modes.get(str(path))

    def _is_directory(self, path: PurePosixPath) -> bool:
        return path == _TOP or stat.S_ISDIR(self._mode(path) or 0)

    def _is_elsewhere(self, path: PurePosixPath) -> bool:
        """Return whether a path leads through a symlink or a submodule, which the commit does not hold."""
        modes = [self._mode(parent) for parent in (path, *path.parents) if parent != _TOP]
        return any(mode is not None and not stat.S_ISDIR(mode) and not stat.S_ISREG(mode) for mode in modes)

    def _may_come(self, path: PurePosixPath) -> bool:
        """Return whether the settings can add a file or a directory to the worktree."""
        settings, checkout = self.settings, self.project.checkout
        if any(path.is_relative_to(shared.rstrip("/")) for shared in (*settings.link, *settings.pool_keep)):
            return True
        if not settings.copy and not os.path.lexists(checkout / INCLUDE):
            return False
        # A directory comes with the ignored files in it.
        return (checkout / path).is_dir() or is_ignored(self.project.git, str(path))

    def _require_outside(self) -> None:
        """Raise an error if a path that leads out of the worktree leads to nothing."""
        worktree = self.project.root / WORKTREES / "session"
        if not os.path.lexists(os.path.normpath(worktree / self.start / self.program)):
            raise self._not_found(None)

    def _not_found(self, path: PurePosixPath | None) -> AgentNotFoundError:
        if self.start != self.wanted:
            top = "at the top of its worktree" if self.start == _TOP else f"in {self.start} of its worktree"
            return AgentNotFoundError(
                f"agent command {self.program} was not found:"
                f" {self.wanted} is not committed, so the agent starts {top}",
                self._to_start_there(),
            )
        if path is None:
            real = Path(os.path.normpath(self.project.checkout / self.wanted / self.program))
            hint = (
                self._command_line(self.wanted, os.fspath(real))
                if real.is_file()
                else "name a file that exists"
            )
            return AgentNotFoundError(
                f"agent command {self.program} was not found: it leads out of the agent's worktree", hint
            )
        return AgentNotFoundError(
            f"agent command {self.program} was not found:"
            f" the worktree has only committed files, and {self.commit[:12]} has no {path}",
            self._to_add(path),
        )

    def _to_add(self, path: PurePosixPath) -> str:
        """Return the command that commits the program, or one that shows which files are committed."""
        if not self.is_head or not (self.project.checkout / path).is_file():
            listing = f"ls-tree -r --name-only {self.commit[:12]}"
            return f"to list its files: git -C {shlex.quote(os.fspath(self.project.checkout))} {listing}"
        force = "-f " if is_ignored(self.project.git, str(path)) else ""
        return self._to_commit(f"git add {force}{shlex.quote(self.program)}", f"Add {path.name}")

    def _to_commit(self, first: str, message: str) -> str:
        """Return a command that commits the program after another command."""
        commit = f"git commit -m {shlex.quote(message)} {shlex.quote(self.program)}"
        return in_directory(self.settings.project, f"{first} && {commit}")

    def _to_start_there(self) -> str:
        """Return the command for a program that the user has named from a directory without a commit."""
        meant = [*_steps(self.wanted, self.program)][-1]
        if meant is None or not (self.project.checkout / meant).is_file():
            return "name a file that exists, by its path from there"
        if meant.is_relative_to(self.wanted):
            return self._to_add(meant)  # then the directory is committed, too
        named = f"./{os.path.relpath(meant, self.start)}"
        line = self._command_line(self.start, named)
        if self._mode(meant) is not None or not self.is_head:
            return line
        directory = shlex.quote(os.fspath(self.project.checkout / self.start))
        git, file = f"git -C {directory}", shlex.quote(named)
        return f"{git} add {file} && {git} commit -m {shlex.quote(f'Add {meant.name}')} {file} && {line}"

    def _command_line(self, start: PurePosixPath, program: str) -> str:
        """Return the command that starts the same session in another directory, with another path."""
        settings = self.settings
        words = settings.typed or ()
        options = [*(words[: words.index("--")] if "--" in words else words)]
        options += ["--base", settings.base] if settings.base != "head" else []
        options += ["--branch", settings.branch] if settings.branch else []
        if settings.agent or not words:
            return f"name it {shlex.quote(program)}"
        directory = os.fspath(self.project.checkout / start)
        verb = "spawn" if settings.background else "run"
        return shlex.join(
            ("ralph-wrap", verb, "-C", directory, *options, "--", program, *settings.command[1:])
        )
