"""Look out of a session's workspace, again and again, and tell what has changed there.

The first look is begun while git checks the workspace out, so that the agent's start does not wait for it,
and is done before the agent can do anything: begun later, it could not tell what the agent did first. Each
further look, after setup, an iteration or a pause, is compared with the one before. So one look is enough
between two iterations, and what changes there is seen, too.

In a worktree that was started inside another session's, what is looked at is the project's own checkout all
the same; the outer session's worktree is its own business.

Who has changed it is not known, and not guessed at: the user may work there.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.leaks.observation import Looking, Outside, Place

_NAMED = 10  # changes of one look that are named; the others are counted
_KEPT = 100  # lines of a whole session, which may go on for weeks
_LOOKS = 2  # while somebody lands branches
_STEP = 0.1  # seconds until a signal is seen
_PATIENCE = 600.0  # seconds until git counts as hanging
_IN_A_HURRY = 0.5  # seconds, once a signal has come: whoever sends TERM may kill soon


class Lookout:
    """Tells what changes outside a workspace; entered while the workspace is made.

    Arguments:
        root: the project root, which is looked at.
        workspace: the session's worktree, which need not be there yet.
        branch: short name of its branch.
        stopped: tells that the session is to end.

    """

    def __init__(
        self,
        where: Git,
        *,
        root: Path,
        common_dir: Path,
        workspace: Path,
        branch: str,
        told: Log,
        stopped: Callable[[], bool],
    ) -> None:
        self._where = where
        self._around = (root, common_dir, workspace, branch)
        self._root = root
        self._told = told
        self._stopped = stopped
        self._place: Place | None = None
        self._looking: Looking | None = None
        self._seen: Outside | None = None
        self._trouble = ""
        self._lines: list[str] = []
        self._left_out = 0

    @property
    def found(self) -> tuple[str, ...]:
        """What has changed so far, a line each, with the time of its being seen."""
        more = (f"and {self._left_out} more: see events.jsonl",) if self._left_out else ()
        return (*self._lines, *more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.begin()
            self._seen = self._finish()
        elif self._looking is not None:
            self._looking.__exit__()

    def begin(self) -> None:
        """Begin the first look; a further call does nothing."""
        if self._looking is None and not self._trouble:
            self._looking = self._start()

    def look(self, when: str) -> bool:
        """Look, tell what has changed since the last time, and return whether anything has.

        Arguments:
            when: what has happened since then.

        """
        from ralph_wrap.state import landings  # noqa: PLC0415 -- see begin
        from ralph_wrap.worktree.leaks.compare import changed_keys, compare  # noqa: PLC0415

        run = self._root / ".ralph" / "run"
        for _ in range(_LOOKS):  # one that saw files on their way is not what anybody has made of them
            landed, moving = landings.read(run), landings.is_moving(run)
            self._looking = self._start()
            now = self._finish()
            if self._stopped() or not (moving or landings.is_moving(run) or landings.read(run) != landed):
                break
        before, self._seen = self._seen, now or self._seen
        if now is None or before is None:
            return False
        changes = compare(
            before, now, lambda one, other: changed_keys(self._where, one, other), landings.read(run)
        )
        if changes:
            self._tell(when, changes)
        return bool(changes)

    def _start(self) -> Looking | None:
        # Loaded while git checks files out: see begin.
        from ralph_wrap.worktree.leaks.observation import Looking, Place  # noqa: PLC0415

        try:
            if self._place is None:
                self._place = Place.at(self._where, *self._around)
            return Looking(self._place)
        except OSError as error:
            self._give_up(str(error))
        return None

    def _finish(self) -> Outside | None:
        if self._looking is None:
            return None
        with self._looking as looking:
            deadline = time.monotonic() + _PATIENCE
            while not looking.is_done(_STEP):
                if self._stopped():
                    if self._seen is None:  # no agent will be started
                        return None
                    deadline = min(deadline, time.monotonic() + _IN_A_HURRY)
                if time.monotonic() >= deadline:
                    self._give_up("git takes too long")
                    return None
            try:
                return looking.result()
            except Exception as error:  # noqa: BLE001 -- whoever only looks must not end a session
                self._give_up(str(error))
        return None

    def _give_up(self, reason: str) -> None:
        """Tell, once for the same reason, that one look could not be had."""
        if reason != self._trouble:
            self._trouble = reason
            self._told.warning(
                "leak.unknown",
                f"changes outside the worktree cannot be seen: {reason}",
                f"git -C {shlex.quote(str(self._root))} status",
            )

    def _tell(self, when: str, changes: list[str]) -> None:
        named = changes[:_NAMED]
        if len(changes) > _NAMED:
            named.append(f"and {len(changes) - _NAMED} more")
        root = shlex.quote(str(self._root))
        self._told.warning(
            "leak.found",
            f"changed outside the worktree {when}: {', '.join(named)}",
            f"made by the agent or by anybody else: git -C {root} status; git -C {root} diff HEAD",
            changes=named,
        )
        lines = [f"{when}: {change}" for change in named]
        room = max(0, _KEPT - len(self._lines))
        self._lines += lines[:room]
        self._left_out += len(lines[room:])
