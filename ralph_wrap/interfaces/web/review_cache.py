"""The cached rows of ``review``; a thread compares the branches again when something has changed.

To compare a thousand branches takes seconds. So a page waits only a moment for the thread. Then it shows the
old rows, or none, and asks again.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import NamedTuple

from ralph_wrap.branches.intake import import_bundles
from ralph_wrap.commands import review
from ralph_wrap.commands.review import Review
from ralph_wrap.errors import RalphError
from ralph_wrap.git import list_refs
from ralph_wrap.state.project import RUN, Project, has_clones, registries
from ralph_wrap.system import files
from ralph_wrap.system.log import get_logger, traceback_of

log = get_logger()

_OLDEST = 60.0  # seconds; the kill of a session changes no file
_OLDEST_PROBLEM = 2.0


class CachedReview(NamedTuple):
    """The latest review, ``None`` if there is none yet, and whether it is up to date."""

    review: Review | None
    fresh: bool


class ReviewCache:
    """The reviewed branches of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._changed = threading.Condition()
        self._state: object = None
        self._compared_at = 0.0
        self._review: Review | None = None
        self._problem: RalphError | None = None
        self._busy = False

    def start(self) -> None:
        """Compare the branches before the first page needs them."""
        with self._changed:
            self._start()

    def get(self, patience: float) -> CachedReview:
        """Return the latest review.

        Arguments:
            patience: the maximum time to wait for an up-to-date review, in seconds.

        Raises:
            RalphError: the branches cannot be read.

        """
        state = self._look()
        deadline = time.monotonic() + patience
        with self._changed:
            while not self._is_fresh(state):
                self._start()
                if not self._changed.wait(deadline - time.monotonic()) or time.monotonic() >= deadline:
                    break
            if self._problem is not None:
                raise self._problem
            return CachedReview(self._review, self._is_fresh(state))

    def _start(self) -> None:
        if not self._busy:
            self._busy = True
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._compare,), name="review", daemon=True
            ).start()

    def _is_fresh(self, state: object) -> bool:
        oldest = _OLDEST if self._problem is None else _OLDEST_PROBLEM
        return self._state == state and time.monotonic() - self._compared_at < oldest

    def _look(self) -> object:
        """Return a value that differs if the rows may have changed."""
        homes = list(registries(self._project))
        directories = [
            files.state(path)
            for home in homes
            for path in (home.agents, *sorted(home.agents.glob("*.json")), home.sessions, home.bundles)
        ]
        refs, head = None, None
        if self._project.repository is not None:
            git = self._project.git
            refs = hash(tuple(list_refs(git, "refs/heads", "refs/remotes").items()))
            head = files.state(
                self._project.repository.common_dir / "HEAD"
            )  # names the main checkout's branch
        run = self._project.root / RUN
        notes = [files.state(path) for path in (run.parent / "config.toml", run / "checks.json")]
        return refs, head, *notes, *directories

    def _compare(self) -> None:
        state, latest, problem = None, None, None
        try:
            if has_clones(self._project):
                import_bundles(self._project)
            state = self._look()
            latest = review.look(self._project)
        except RalphError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 -- a bug: a page must show it, and the next one try again
            problem = RalphError(
                f"ralph-wrap failed: {error!r}", "please report this with the output on stderr"
            )
            log.error("review.failed", problem.message, traceback=traceback_of(error))
        with self._changed:
            self._state, self._compared_at = state, time.monotonic()
            self._review, self._problem, self._busy = latest, problem, False
            self._changed.notify_all()
