"""Everything that an audit finds in full, and what the user can do with it: undo it, or accept it.

An undo puts back what this machine remembers from the last audit that found nothing, usually the one at the
start of the session. What it takes away goes to ``ralph-wrap-aside`` in the git directory, by a rename or as
a verified copy. So an undo can be undone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import NotARepositoryError, RalphError, RefusedError
from ralph_wrap.git import git_environment, pointer, run_git
from ralph_wrap.git.command import Git
from ralph_wrap.git.config_file import parse
from ralph_wrap.state.audit.finding import EFFECTS, KEYS, REMOVABLE, Finding, FindingKind
from ralph_wrap.state.audit.look import Audit, audit
from ralph_wrap.state.project import Project, find_project_without_git
from ralph_wrap.system import files
from ralph_wrap.system.temporary import temporary_directory

ASIDE = "ralph-wrap-aside"
"""The directory in the git directory for what an undo takes away."""

_EXECUTABLE = 0o755
_LARGEST = 1 << 20
_NO_SUCH_KEY = 5  # exit status of "git config --unset-all" (git-config(1)): an agent has deleted it


class AuditRow(NamedTuple):
    """One finding in full.

    Attributes:
        title: its path and name.
        place: its path, below the project root if it is inside.
        name: the key or the ref in it; empty if the path says it all.
        kind: a value of :class:`FindingKind`.
        effect: what plain git does with it.
        since: when it was seen first; ``None`` if it is accepted.
        remove: the command that takes it away.
        accepted: the user has accepted it, or it was there before the first session.

    """

    title: str
    place: str
    name: str
    kind: str
    effect: str
    since: str | None
    remove: str
    accepted: bool


class UndoneFinding(NamedTuple):
    """What an undo did with one finding.

    Attributes:
        title: its path and name.
        action: ``put back`` (as this machine remembers it), ``taken away``, or ``left``.
        aside: where the agent's version is now.
        reason: why it is left.

    """

    title: str
    action: str
    aside: str | None = None
    reason: str | None = None


def project_of(directory: Path, environ: Mapping[str, str]) -> Project:
    """Return the project of a directory; no git runs, because it may hang.

    Raises:
        NotARepositoryError: there is no ``.git`` in or above the directory.

    """
    project = find_project_without_git(directory, environ)
    if project is None:
        raise NotARepositoryError(f"{directory.resolve()} is not in a git repository", "git init")
    return project


def rows(result: Audit) -> list[AuditRow]:
    """Return all findings in full, first those that the user has not accepted."""
    found = [_row(finding, result.since.get(finding.digest), accepted=False) for finding in result.findings]
    return [*found, *(_row(finding, None, accepted=True) for finding in result.accepted)]


def _row(finding: Finding, since: str | None, *, accepted: bool) -> AuditRow:
    return AuditRow(
        finding.title,
        finding.shown_path,
        finding.name,
        finding.kind.value,
        EFFECTS[finding.kind],
        since,
        finding.remedy,
        accepted,
    )


def undo(project: Project) -> list[UndoneFinding]:
    """Put back what this machine remembers, and return what became of each finding.

    Raises:
        OSError: the agent's versions cannot be kept aside.

    """
    result = audit(project)
    if not result.findings:
        return []
    common = pointer.common_dir_by_place(project.root)
    directory = common / ASIDE / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    work = _Undo(project, common, directory, result.memory.contents if result.memory.looked else None)
    return [work.undo(finding) for finding in result.findings]


class _Undo(NamedTuple):
    """Undoes findings.

    Attributes:
        common: the git directory of the repository.
        directory: where the agent's versions go.
        contents: files as they were, by shown path; ``None`` if this machine never saw the project clean.

    """

    project: Project
    common: Path
    directory: Path
    contents: Mapping[str, bytes] | None

    def undo(self, finding: Finding) -> UndoneFinding:
        """Undo one finding."""
        try:
            return self._undo(finding)
        except (OSError, ValueError, RalphError) as error:
            return UndoneFinding(finding.title, "left", reason=str(error))

    def _undo(self, finding: Finding) -> UndoneFinding:
        path = Path(finding.path)
        if self.contents is None:
            raise _by_hand(finding, "this machine has not seen the project without it")
        if finding.kind is FindingKind.REPLACE:
            return self._drop_ref(finding)
        if not path.is_relative_to(self.common) or not _is_plainly_below(path, self.common):
            raise _by_hand(finding, "it is outside the git directory")
        earlier = self.contents.get(finding.shown_path)
        if finding.kind in KEYS:
            return self._put_keys_back(finding, path, earlier or b"")
        if finding.kind is FindingKind.COMMON_DIR and path.parent.parent.name == "worktrees":
            earlier = b"../..\n"  # what git writes in each registration
        if earlier is None and finding.kind not in {*REMOVABLE, FindingKind.COMMON_DIR}:
            return UndoneFinding(
                finding.title, "left", reason=f"no earlier version; by hand: {finding.remedy}"
            )
        aside = self._move_aside(path)
        if earlier is None:
            return UndoneFinding(finding.title, "taken away", os.fspath(aside))
        files.replace(path, earlier)
        if path.parent.name == "hooks":
            path.chmod(_EXECUTABLE)
        return UndoneFinding(finding.title, "put back", os.fspath(aside))

    def _aside(self, path: Path) -> Path:
        if not _is_plainly_below(self.directory, self.common):
            raise RefusedError(f"{self.directory.parent} is a symlink")
        aside = self.directory / path.relative_to(self.common)
        aside.parent.mkdir(parents=True, exist_ok=True)
        return aside

    def _move_aside(self, path: Path) -> Path:
        aside = self._aside(path)
        path.rename(aside)
        return aside

    def _put_keys_back(self, finding: Finding, path: Path, earlier: bytes) -> UndoneFinding:
        """Give a key its earlier values, usually none; the rest of the file stays as it is."""
        state = files.state(path)
        content = files.read(path, _LARGEST)
        aside = self._aside(path)
        if not aside.exists():
            files.replace(aside, content)
            if files.read(aside, _LARGEST) != content:
                raise OSError(f"{aside} could not be written")
        values = [value for key, value in parse(earlier) if key == finding.name]
        changed = _with_values(content, finding.name, values)
        if not files.replace(path, changed, unless_changed_since=state):
            raise OSError(f"{path} has changed meanwhile")
        return UndoneFinding(finding.title, "put back" if values else "taken away", os.fspath(aside))

    def _drop_ref(self, finding: Finding) -> UndoneFinding:
        """Delete a ref, and keep its value in a file."""
        git = self.project.git
        oid = run_git(git, "rev-parse", "--verify", finding.name).stdout.decode().strip()
        aside = self._aside(self.common / finding.name)
        files.replace(aside, f"{oid}\n".encode())
        run_git(git, "update-ref", "-d", finding.name, oid)
        return UndoneFinding(finding.title, "taken away", os.fspath(aside))


def _is_plainly_below(path: Path, directory: Path) -> bool:
    """Return whether no directory between the two is a symlink, which an agent can point anywhere."""
    return path.parent.resolve() == directory.resolve() / path.parent.relative_to(directory)


def _by_hand(finding: Finding, reason: str) -> RefusedError:
    return RefusedError(f"{reason}; by hand: {finding.remedy}")


def _with_values(content: bytes, key: str, values: list[str | None]) -> bytes:
    """Return the text of a configuration file in which a key has other values.

    Raises:
        GitError: git cannot change it.

    """
    where = temporary_directory()
    with tempfile.TemporaryDirectory(prefix="ralph-wrap-audit-", dir=where) as directory:
        copy = Path(directory, "config")
        copy.write_bytes(content)
        git = Git(Path(directory), git_environment(os.environ))
        run_git(git, "config", "--file", copy, "--unset-all", key, accept=(0, _NO_SUCH_KEY))
        for value in values:
            run_git(git, "config", "--file", copy, "--add", key, "true" if value is None else value)
        return copy.read_bytes()
