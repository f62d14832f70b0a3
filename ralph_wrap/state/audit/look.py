"""Compare a scan with what the user has accepted, and remember what was seen.

What existed before the first session of a project counts as accepted: the user's own hooks, LFS, a mirror's
push address. From then on each other finding is reported until the user accepts it or takes it away. A
machine that sees a project for the first time after agents have worked in it accepts nothing by itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config.repository_trust import approved_keys
from ralph_wrap.errors import RalphError
from ralph_wrap.git import pointer
from ralph_wrap.git.config_file import parse
from ralph_wrap.state.audit.finding import (
    CHANGES,
    KEYS,
    REMOVABLE,
    WARNED_OF,
    Finding,
    FindingKind,
    digest_of,
)
from ralph_wrap.state.audit.memory import NOTHING, AuditMemory, recall, remember
from ralph_wrap.state.audit.scan import Scan, scan
from ralph_wrap.state.project import Project, registries
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system.log import Commands

_OFTEN = 60.0  # seconds between two notes that nothing was found
_CONFIGURATIONS = ("/config", "/config.worktree")
_IDENTITY = ("user.", "author.", "committer.")
_OF_OTHER_PROGRAMS = (".gh-resolved",)  # gh notes in it which remote a pull request goes to


class Audit(NamedTuple):
    """The result of an audit.

    Attributes:
        findings: what the user has not accepted.
        accepted: what the user has accepted.
        since: when each finding was first seen, in words, by digest; findings without an entry are older.
        memory: what was remembered before.
        undoable: an undo can do something about one of the findings at least.
        problem: why nothing of what was remembered counts; ``None`` if it does.

    """

    findings: tuple[Finding, ...]
    accepted: tuple[Finding, ...]
    since: Mapping[str, str]
    memory: AuditMemory
    undoable: bool = False
    problem: RalphError | None = None

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The findings for which commands that land something refuse."""
        return tuple(finding for finding in self.findings if finding.kind not in WARNED_OF)

    @property
    def way_out(self) -> Commands:
        """What the user can do about the findings, a command a line; an undo only if it can do anything."""
        return Commands.of(
            "to put back how it was: ralph-wrap audit --undo"
            if self.undoable
            else "to take it away by hand, ralph-wrap audit shows a command for each",
            "to accept it as it is, if you did it: ralph-wrap audit --accept",
        )


def audit(project: Project, session: str = "") -> Audit:
    """Look at the repository of a project.

    Arguments:
        session: the session that has just ended; new findings came while it ran.

    """
    root, environ = project.root, project.environ
    if not os.path.lexists(root / ".git"):
        return Audit((), (), {}, NOTHING)
    memory, problem = None, None
    try:
        memory = recall(root, environ)
    except RalphError as error:
        problem = error
    found = scan(root, environ)
    if memory is None and problem is None and not _agents_have_worked(project):
        memory = AuditMemory({finding.digest: finding.title for finding in found.findings}, {}, {})
    before = memory or NOTHING
    candidates = [*found.findings, *_changed_keys(root, before, found)]
    open_findings = [finding for finding in candidates if finding.digest not in before.accepted]
    open_findings = _without_approved(project, open_findings)
    now = datetime.now(UTC)
    words = _words(before, session, now)
    since = {finding.digest: before.since.get(finding.digest, words) for finding in open_findings}
    after = before._replace(since=since)
    if not open_findings:
        after = after._replace(contents=found.contents, looked=now.isoformat(timespec="seconds"))
    if problem is None and _differs(memory, after, now):
        with contextlib.suppress(OSError, RalphError):  # a read-only home: the next audit says the same
            remember(root, environ, after)
    refused = {finding.digest for finding in open_findings}
    accepted = tuple(finding for finding in found.findings if finding.digest not in refused)
    common_dir = pointer.common_dir_by_place(root)
    undoable = any(_can_be_undone(finding, common_dir, before) for finding in open_findings)
    return Audit(tuple(open_findings), accepted, since, before, undoable, problem)


def _can_be_undone(finding: Finding, common_dir: Path, memory: AuditMemory) -> bool:
    """Return whether an undo has what it needs for a finding: see ``commands.audit``."""
    if not memory.looked:  # this machine has not seen the project without it
        return False
    if finding.kind is FindingKind.REPLACE:
        return True
    without_copy = finding.kind in {*KEYS, *REMOVABLE, FindingKind.COMMON_DIR}
    return Path(finding.path).is_relative_to(common_dir) and (
        without_copy or finding.shown_path in memory.contents
    )


def _without_approved(project: Project, findings: list[Finding]) -> list[Finding]:
    """Return findings without the keys that the user has approved by ``ralph-wrap trust``."""
    common_dir = pointer.common_dir_by_place(project.root)
    config = f"{common_dir}/config"
    if not any(finding.kind in KEYS and finding.path == config for finding in findings):
        return findings
    keys: frozenset[str] = frozenset()
    with contextlib.suppress(RalphError):
        keys = approved_keys(common_dir, project.environ)
    return [
        finding
        for finding in findings
        if finding.path != config or finding.kind not in KEYS or finding.name not in keys
    ]


def accept(project: Project, findings: tuple[Finding, ...]) -> None:
    """Accept findings that the user has seen, as they are now.

    Raises:
        RalphError: there is no directory outside the project that only the user can write, or what is
            remembered cannot be read.
        OSError: the file cannot be written.

    """
    memory = recall(project.root, project.environ) or NOTHING
    accepted = {finding.digest: finding.title for finding in findings}
    contents = dict(memory.contents)
    if any(finding.kind in CHANGES for finding in findings):
        contents = {
            shown_path: content for shown_path, content in contents.items() if not _is_config(shown_path)
        }
    memory = memory._replace(accepted={**memory.accepted, **accepted}, contents=contents)
    remember(project.root, project.environ, memory)


def _words(before: AuditMemory, session: str, now: datetime) -> str:
    if session:
        return f"session {session}"
    if before.looked:
        return f"after {before.looked}, before {now.isoformat(timespec='seconds')}"
    return "before the first audit on this machine"


def _differs(before: AuditMemory | None, after: AuditMemory, now: datetime) -> bool:
    if before is None or before._replace(looked="") != after._replace(looked=""):
        return True
    if after.looked == before.looked:
        return False
    try:
        return (now - datetime.fromisoformat(before.looked)).total_seconds() > _OFTEN
    except (ValueError, TypeError):
        return True


def _agents_have_worked(project: Project) -> bool:
    """Return whether an agent may have worked in a project; sessions that only begin have not started one.

    A session looks before it starts its agent, and what it remembers is there before its state changes. So
    of several first sessions at once, each finds either no agent or what another one has remembered.
    """
    for home in registries(project):
        starting = {
            record.session
            for record in home.unfinished()
            if isinstance(record, SessionRecord) and record.state == "starting"
        }
        with contextlib.suppress(OSError):
            if any(path.name not in starting for path in home.sessions.iterdir()):
                return True
    return False


# Keys that are harmless until they change


def _changed_keys(root: Path, before: AuditMemory, found: Scan) -> Iterator[Finding]:
    """Yield the keys of remotes and of the identity that were others when an audit last found nothing."""
    known = {(finding.shown_path, finding.name) for finding in found.findings}
    own = f"{pointer.common_dir_by_place(root)}/config.worktree"  # which an agent can make
    for shown_path in before.contents.keys() | found.contents.keys():
        path = shown_path if shown_path.startswith("/") else f"{root}/{shown_path}"
        absent = b"" if before.looked and path == own else None
        old, content = before.contents.get(shown_path, absent), found.contents.get(shown_path)
        if old is None or content is None or old == content or not _is_config(shown_path):
            continue
        earlier, now = _watched(old), _watched(content)
        for key in sorted(earlier.keys() | now.keys()):
            if earlier.get(key) != now.get(key) and (shown_path, key) not in known:
                kind = _kind_of_change(key, is_new=key not in earlier)
                digest = digest_of(shown_path, kind.value, key, *now.get(key, ()))
                yield Finding(shown_path, path, kind, key, digest)


def _kind_of_change(key: str, *, is_new: bool) -> FindingKind:
    if key.startswith(_IDENTITY):
        return FindingKind.CHANGED_IDENTITY
    is_address = key.startswith("remote.") and key.endswith(".url")
    return FindingKind.CHANGED_ADDRESS if is_address and not is_new else FindingKind.CHANGED_REMOTE


def _is_config(file: str) -> bool:
    return file.endswith(_CONFIGURATIONS)


def _watched(content: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with contextlib.suppress(ValueError):
        for key, value in parse(content):
            if key.startswith((*_IDENTITY, "remote.")) and not key.endswith(_OF_OTHER_PROGRAMS):
                found.setdefault(key, []).append(value or "")
    return found
