"""Write the files of a live session anew: ``git clean -fdx`` in the project deletes ``.ralph/run``.

Without its record and lock, ``ps`` does not show a session, ``stop`` does not reach it, and its end has no
place for the report. What the session still has open, such as its logs, comes back whole.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from ralph_wrap.errors import RalphError
from ralph_wrap.state.claim import SessionClaim
from ralph_wrap.state.project import Project, linked_directory
from ralph_wrap.system.log import current, get_logger

log = get_logger()


class OwnFiles:
    """The files of a live session in ``.ralph/run``.

    Arguments:
        claim: the session's record, lock and directory.

    Attributes:
        steps: each writes one more file of the session anew, or does nothing if it is there.

    """

    def __init__(self, project: Project, claim: SessionClaim) -> None:
        self._project = project
        self._claim = claim
        self.steps: list[Callable[[], None]] = []
        self._trouble = ""

    @property
    def directory(self) -> Path:
        """The directory of the session."""
        return self._claim.directory

    @property
    def are_there(self) -> bool:
        """Whether record, lock and directory are in their places."""
        return self._claim.is_whole

    def restore(self) -> bool:
        """Write what is missing, and return whether anything was missing; an error does not end the loop."""
        if self.are_there:
            return False
        try:
            self._write()
        except (OSError, RalphError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning(
                    "session.files_missing",
                    f"the files of the session in {self._claim.registry.directory} were deleted,"
                    f" and cannot be written anew: {error}",
                )
            return False
        log.warning(
            "session.files_restored",
            f"the files of the session in {self._claim.registry.directory} were deleted, as by"
            " git clean -fdx; they are back",
            "records of ended sessions are gone, their branches are not: ralph-wrap review",
        )
        return True

    def _write(self) -> None:
        if link := linked_directory(self._project):
            raise OSError(errno.ELOOP, "a symlink is not followed", os.fspath(link))
        self._claim.write_anew()
        current().write_again(self._claim.directory / "events.jsonl")
        for step in self.steps:
            step()
