"""Shorten the output logs of ended sessions that are longer than ``max_output``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.state.project import Project, registries
from ralph_wrap.state.record import SessionRecord, read_record
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.output_log import length_at_most, shorten


class LongLog(NamedTuple):
    """An output log that was longer than the limit.

    Attributes:
        session: session id.
        title: what people call the session; empty if that is not known.
        size: what it is shorter now, in bytes.

    """

    session: str
    title: str
    size: int


def shorten_logs(project: Project, limit: int, *, dry_run: bool = False) -> list[LongLog]:
    """Shorten the logs of finished sessions.

    Arguments:
        limit: in bytes; 0: none.
        dry_run: change nothing.

    Raises:
        OSError: one cannot be shortened, and is as it was.

    """
    shortened = []
    for record, path in _long_logs(project, limit) if limit else ():
        size = path.lstat().st_size - length_at_most(limit) if dry_run else _shorten(path, limit)
        shortened.append(LongLog(record.session, record.title, size))
    return shortened


def _long_logs(project: Project, limit: int) -> Iterator[tuple[SessionRecord, Path]]:
    for registry in registries(project):
        if registry.sessions.is_symlink():
            continue
        for record_path in registry.finished_paths():
            directory = record_path.parent
            path = directory / "output.log"
            if directory.is_symlink() or not _is_longer(path, limit):
                continue
            record = read_record(record_path)
            if (
                isinstance(record, SessionRecord)
                and record.state == "finished"
                and record.session == directory.name
                and not _is_written(registry, record, directory)
            ):
                yield record, path


def _is_longer(path: Path, limit: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > limit


def _is_written(registry: Registry, record: SessionRecord, directory: Path) -> bool:
    """Return whether a process may still write to the log; also if that is unknown."""
    try:
        return any(map(files.is_locked, (directory / "agent.lock", registry.lock_path(record.id))))
    except OSError:
        return True


def _shorten(path: Path, limit: int) -> int:
    for leftover in files.temporaries(path):  # a cleaning was killed here
        leftover.unlink(missing_ok=True)
    log = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        new = shorten(log, path, limit)
        try:
            return os.fstat(log).st_size - os.fstat(new).st_size
        finally:
            os.close(new)
    finally:
        os.close(log)
