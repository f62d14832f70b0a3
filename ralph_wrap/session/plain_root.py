"""The plain project root as the workspace of a session, without a worktree."""

from __future__ import annotations

import contextlib
import os

from ralph_wrap.config import Isolation
from ralph_wrap.errors import PlainRootBusyError
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.state.project import registries
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import deferred, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.session.context import SessionContext


def enter_plain_root(context: SessionContext, fallback: str | None) -> Workspace:
    """Lock the plain project root, and return it as the workspace.

    Arguments:
        fallback: reason for the plain project root, if isolation was wanted.

    Raises:
        PlainRootBusyError: another session works in it.

    """
    root = context.project.checkout
    try:
        lock = files.try_lock(root)
    except OSError as error:
        context.log.warning(
            "plain_root.unlocked",
            f"{root} cannot be locked ({error.strerror}): a second session in it would not be noticed",
        )
        return Workspace(root, fallback=fallback)
    if lock is None:
        session = _session_in(root, context)
        message = f"{session} works in {root} already" if session else _holder_of(root)
        if context.settings.isolation is not Isolation.OFF:
            raise PlainRootBusyError(
                message, "wait for it, or share the directory on purpose with --isolation off"
            )
        context.log.warning("plain_root.shared", message, "--isolation off was given, so both work in it")
    return Workspace(root, lock=lock, fallback=fallback)


def _holder_of(root: Path) -> str:
    return f"another session works in {root} already: {deferred.lock_holder.held_lock(root).sentence}"


def _session_in(root: Path, context: SessionContext) -> str:
    for registry in registries(context.project):
        for record in registry.unfinished():
            with contextlib.suppress(OSError):
                if (
                    isinstance(record, SessionRecord)
                    and record.id != context.record.id
                    and record.workspace == os.fspath(root)
                    and registry.is_locked(record.id)
                ):
                    return f"session {record.session}"
    return ""
