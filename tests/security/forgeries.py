"""Records with a false field, as an agent writes them that can write below ``.ralph/run``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap.state.record import SessionRecord
from ralph_wrap.state.report import SessionReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NOT_FORGED = {"id", "session"}
"""They name the file and the directory: with another value, no command takes the file for a record."""


class Lies(NamedTuple):
    """What a false field can name.

    Attributes:
        commit: the tip of the session's own branch.
        branch: a branch of the user.
        session: another session.
        path: a directory of the user.
        pid: a process of the user.
        option: an option by which git or another program would write to a file.

    """

    commit: str
    branch: str
    session: str
    path: Path
    pid: int
    option: str

    def about(self, name: str, value: object) -> Iterator[Any]:
        """Yield false values for a field, of the type that it has."""
        special: dict[str, tuple[Any, ...]] = {
            "branch": (self.branch, None, self.option),
            "base": (self.commit, None, self.option),
            "restored": (self.commit, self.option),
            "workspace": (os.fspath(self.path),),
            "resumes": (self.session, self.option),
            "worktree": (self.session, "../" * 9),
            "state": ("starting", "finished", "running"),
            "on_dirty": ("keep",),
            "pid": (self.pid, 1, -1),
            "saved": (self.branch, self.option),
            "ended_by": ("signal", "promise"),
            "extra": ({"fetched_from": self.option},),
        }
        if name in special:
            yield from special[name]
        elif isinstance(value, bool):
            yield not value
        elif isinstance(value, int | float):
            yield 0
        elif isinstance(value, list | dict):
            yield [{"path": self.option, "repository": os.fspath(self.path), "refs": [self.option]}]
        else:
            yield self.option


def of_record(record: Mapping[str, Any], lies: Lies) -> Iterator[dict[str, Any]]:
    """Yield the false fields of a record: each field, with each lie about it."""
    yield from _each(SessionRecord._fields, record, lies)


def of_report(report: Mapping[str, Any], lies: Lies) -> Iterator[dict[str, Any]]:
    """Yield the false fields of a report."""
    yield from _each(SessionReport._fields, report, lies)


def _each(names: tuple[str, ...], known: Mapping[str, Any], lies: Lies) -> Iterator[dict[str, Any]]:
    for name in names:
        for lie in lies.about(name, known.get(name)) if name not in NOT_FORGED else ():
            if lie != known.get(name):
                yield lie if name == "extra" else {name: lie}


def forge(path: Path, fields: Mapping[str, object]) -> None:
    """Write false fields into a record or a report."""
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(fields)))


def replace_lock(record: Path) -> None:
    """Put a free lock in the place of the one that a session holds, and name it in the record."""
    lock = record.with_suffix(".lock")
    lock.rename(lock.with_suffix(".held"))
    lock.touch()
    forge(record, {"lock_inode": lock.stat().st_ino})
