"""Observe the files and refs outside a session's workspace, and log each change.

The first observation starts while git checks out the workspace, so that the agent's start does not wait for
it. It ends before the agent starts, because a later one would miss the agent's first changes. Each further
observation, after setup, an iteration or a pause, is compared with the one before. So one observation between
two iterations is enough, and it also shows changes during a pause.

A session inside the worktree of another session also observes the project's own checkout, not the outer
session's worktree.

The monitor does not know, and does not guess, which process made a change: the user may work there.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Self

from ralph_wrap.git import Git
from ralph_wrap.git.command import FIRST_SEARCH
from ralph_wrap.state import landings
from ralph_wrap.state.landings import Landing
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import and_more, command, some
from ralph_wrap.worktree.leaks import compare, observation
from ralph_wrap.worktree.leaks.compare import Change
from ralph_wrap.worktree.leaks.observation import Observation, ObservedCheckout, RunningObservation

log = get_logger()

_OF_GIT = (".git ", ".git/")  # beginnings of the words for a change of what git reads
_NAMED = 10  # changes of one observation in a message, which counts the others
_MOST = 1000  # changes of one observation in events.jsonl
_KEPT = 100  # lines of a whole session, which may run for weeks
_STEP = 0.1  # seconds between two looks for a signal
_PATIENCE = 600.0  # seconds until git counts as stuck
_IN_A_HURRY = 0.5  # seconds after a signal: SIGKILL may follow soon after TERM


class LeakMonitor:
    """Logs changes outside a workspace. The session enters it while it makes the workspace.

    Arguments:
        root: the checkout that it observes.
        run: the directory of the project's records, which name landings.
        workspace: the session's worktree, which may not exist yet.
        branch: short name of its branch.
        cancel: whether the session must end.

    """

    def __init__(
        self,
        git: Git,
        *,
        root: Path,
        run: Path,
        common_dir: Path,
        workspace: Path,
        branch: str,
        cancel: CancelToken,
    ) -> None:
        self._git = git
        self._around = (root, common_dir, workspace, branch)
        self._root, self._run = root, run
        self._cancel = cancel
        self._checkout: ObservedCheckout | None = None
        self._looking: RunningObservation | None = None
        self._seen: Observation | None = None
        self._landings: tuple[Collection[Landing], bool] | None = None
        self._trouble = ""
        self._unknown = ""  # why changes may be missing
        self._began_blind = False  # nothing shows what changed before the first observation
        self._lines: list[str] = []
        self._left_out = 0
        self._has_changed_git = False

    @property
    def found(self) -> tuple[str, ...]:
        """The changes so far, one line each, with the event after which they were seen.

        If an observation failed, and no later one covers its time, the last line says so.
        """
        unknown = [f"not known: {self._unknown}"] if self._unknown else []
        return (*self._lines, *and_more(self._left_out, 0, ": see events.jsonl"), *unknown)

    @property
    def has_found(self) -> bool:
        """Whether something has changed."""
        return bool(self._lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._looking = self._start()
            self._seen = self._finish()

    def look(self, when: str) -> bool:
        """Observe, log the changes since the last observation, and return whether there are any.

        An observation that was started is the one that counts.

        Arguments:
            when: the event since the last observation, in words.

        """
        if self._landings is None:
            self.start_look()
        return self.finish_look(when)

    def start_look(self) -> None:
        """Start an observation; git works while we do something else. An unfinished one does not count."""
        if self._looking is not None:
            with self._looking:
                self._looking = None
        run = self._run
        self._landings = self._read_landings(), landings.is_moving(run)
        self._looking = self._start()

    def finish_look(self, when: str) -> bool:
        """Finish an observation that was started, and do what :meth:`look` does."""
        if self._landings is None:
            return False
        run = self._run
        (landed, moving), self._landings = self._landings, None
        after = self._finish()
        is_landing = moving or landings.is_moving(run) or self._read_landings() != landed
        if is_landing and not self._cancel.requested:  # we may have seen half of its changes
            self._looking = self._start()
            after = self._finish()
        before, self._seen = self._seen, after or self._seen
        if after is None or before is None:
            return False
        if not self._began_blind:
            self._unknown = ""  # this observation shows what the failed ones did not
        changes = compare.compare(
            before,
            after,
            lambda old, new: compare.changed_keys(self._git, old, new),
            self._read_landings(),
        )
        if changes:
            self._log_changes(when, changes)
        return bool(changes)

    def _read_landings(self) -> frozenset[Landing]:
        found = landings.read(self._run)
        if found.problem:
            log.warning(
                "landings.unreadable", f"{found.problem}; what has landed is reported like any other change"
            )
        return found.known

    def _start(self) -> RunningObservation | None:
        try:
            if self._checkout is None:
                self._checkout = observation.ObservedCheckout.at(self._git, *self._around)
            return observation.RunningObservation(self._checkout)
        except OSError as error:
            self._give_up(str(error))
        return None

    def _finish(self) -> Observation | None:
        if self._looking is None:
            return None
        running, self._looking = self._looking, None
        with running as looking:
            try:
                return looking.result() if self._is_done(looking) else None
            except Exception as error:  # noqa: BLE001 -- an observation must not end a session
                self._give_up(str(error))
        return None

    def _is_done(self, looking: RunningObservation) -> bool:
        """Wait for git, and return whether it is done.

        Raises:
            BlockingFileError: git waits for a FIFO or a device, which an agent can put anywhere.

        """
        begun, pause = time.monotonic(), FIRST_SEARCH
        deadline, search = begun + _PATIENCE, begun + pause
        while not looking.is_done(_STEP):
            if self._cancel.requested:
                if self._seen is None:  # no agent will start
                    return False
                deadline = min(deadline, time.monotonic() + _IN_A_HURRY)
            if time.monotonic() >= deadline:
                self._give_up("git takes too long")
                return False
            if time.monotonic() >= search:
                looking.require_unblocked()
                pause *= 2
                search = time.monotonic() + pause
        return True

    def _give_up(self, reason: str) -> None:
        """Log a warning, once for each reason, that an observation failed."""
        self._unknown = reason
        self._began_blind = self._began_blind or self._seen is None
        if reason != self._trouble:
            self._trouble = reason
            log.warning(
                "leak.unknown",
                f"cannot look for changes outside the worktree: {reason}",
                Commands.of(*self._ways_to_look("to see the cause")[:1]),
            )

    def _log_changes(self, when: str, changes: list[Change]) -> None:
        words = [change.words for change in changes]
        self._has_changed_git |= any(line.startswith(_OF_GIT) for line in words)
        named = changes[:_NAMED]
        remedies = [self._remedy(change) for change in named]
        log.warning(
            "leak.found",
            f"changed outside the worktree {when}: {', '.join(some(words, _NAMED))}",
            Commands.of(*self._ways_to_look("to see what changed"), *filter(None, remedies)),
            changes=some(words, _MOST),
            remedies=[*filter(None, map(self._remedy, changes[:_MOST]))],
        )
        lines = [
            f"{when}: {change.words}{remedy and f'; {remedy}'}"
            for change, remedy in zip(named, remedies, strict=True)
        ]
        lines += [f"{when}: {words}" for words in and_more(len(changes), _NAMED)]
        room = max(0, _KEPT - len(self._lines))
        self._lines += lines[:room]
        self._left_out += len(lines[room:])

    def _ways_to_look(self, purpose: str) -> list[str]:
        """Return the commands that show it; none of git if what changed may have git run a program."""
        if self._has_changed_git:
            audit = command("ralph-wrap", "audit", "-C", self._root)
            return [f"to see what git would run now, before you type a git command: {audit}"]
        git = ("git", "-C", self._root)
        return [f"{purpose}: {command(*git, 'status')}", command(*git, "diff", "HEAD")]

    def _remedy(self, change: Change) -> str:
        """Return the command for a change, with its purpose; empty if there is none."""
        if not change.arguments:
            return ""
        return f"{change.purpose}: {command('git', '-C', self._root, *change.arguments)}"
