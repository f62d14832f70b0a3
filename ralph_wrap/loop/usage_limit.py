"""The account that an agent works with, and until when its usage limit holds.

One session's discovery is shared with the others of that agent and account, in
``.ralph/run/limits/<agent>-<digits>.json``; the digits come from the variables that say whose account it is.
They are few, so that nobody can tell by them whether a guess at a key is right.

An agent can write there, too. So a time is believed only if it is at most a day away, which is as long as
anybody waits before the agent is asked again; what is not of this format is not there. Whoever removes the
file lets all that wait for its time go on.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
from functools import cached_property
from typing import TYPE_CHECKING

from ralph_wrap.loop.policy import LONGEST_TOLD_HOLD
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1
"""Of the file."""

_LARGEST = 4096  # bytes of the file; more is none
_DIGITS = 8
_WHOSE = re.compile(
    r".*_(API_KEY|AUTH_TOKEN|OAUTH_TOKEN|BASE_URL)|HOME|CLAUDE_CONFIG_DIR|CODEX_HOME|XDG_(CONFIG|DATA)_HOME"
)


class Account:
    """The account of one agent, as its sessions in a project know it.

    Arguments:
        directory: where it is shared.
        agent: its name; empty for a command without one, whose limits are not known either.
        environ: the agent's environment.

    """

    def __init__(self, directory: Path, agent: str, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._agent = agent
        self._environ = environ
        self._own = 0.0
        self._is_shared = False

    @cached_property
    def path(self) -> Path:
        """The file in which it is shared."""
        return self._directory / f"{self._agent}-{_digits(self._environ)}.json"

    @property
    def hint(self) -> dict[str, str]:
        """What ends the waiting for it at once, for people who know better; nothing if that is not shared."""
        return {"hint": f"to try at once: rm {shlex.quote(str(self.path))}"} if self._is_there() else {}

    def refuse(self, until: float, now: float) -> None:
        """Take note that it may not be used for a while, and share that.

        Arguments:
            until: in seconds since the epoch.
            now: the same.

        Raises:
            OSError: it cannot be shared.

        """
        self._own = until
        self._is_shared = self._read(now) >= until
        if not self._agent or self._is_shared:
            return
        self._directory.mkdir(exist_ok=True)
        if self._directory.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(self._directory))
        files.replace(
            self.path, json.dumps({"version": VERSION, "until": until}).encode() + b"\n", sync=False
        )
        self._is_shared = True

    def refused_until(self, now: float) -> float:
        """Return until when it may not be used, in seconds since the epoch; 0 if it may be.

        Arguments:
            now: in seconds since the epoch.

        """
        found = self._read(now)
        if self._is_shared and not self._is_there():
            self._own = 0.0
        until = max(found, self._own)
        return until if until > now else 0.0

    def _is_there(self) -> bool:
        return bool(self._agent) and self.path.exists()

    def _read(self, now: float) -> float:
        if not self._agent or not self._directory.is_dir():  # nearly always
            return 0.0
        try:
            told = json.loads(files.read(self.path, _LARGEST))
            until = told["until"] if told["version"] == VERSION else 0.0
            return float(until) if now < until <= now + LONGEST_TOLD_HOLD else 0.0
        except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return 0.0


def _digits(environ: Mapping[str, str]) -> str:
    whose = sorted((name, value) for name, value in environ.items() if value and _WHOSE.fullmatch(name))
    import hashlib  # noqa: PLC0415 -- slow, and most sessions meet no limit

    return hashlib.sha256(json.dumps(whose).encode()).hexdigest()[:_DIGITS]
