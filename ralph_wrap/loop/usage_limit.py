"""The account of an agent, and the end of its usage limit.

A session that finds a limit shares it with the other sessions of the same agent and account, in
``.ralph/run/limits/<agent>-<digits>.json``. The digits are a hash of the variables that name the account. The
hash is short, so it cannot confirm a guess at a secret key.

An agent can write this file too. So a time counts only if it is at most a day away; a session tries the agent
once a day in any case. A file of another format is ignored. If a user removes the file, all sessions that
wait for its time continue. A limit whose end no service has named is a guess of ours: the file has its end by
the clock of this boot, too, which nobody sets.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ralph_wrap.loop.policy import LONGEST_HOLD
from ralph_wrap.system import files, liveness
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.system.uptime import uptime

_FORMAT = DocumentFormat(version=1, largest=4096)
_DIGITS = 8
_ACCOUNT_VARIABLES = re.compile(
    r".*_(API_KEY|AUTH_TOKEN|OAUTH_TOKEN|BASE_URL)|HOME|CLAUDE_CONFIG_DIR|CODEX_HOME|XDG_(CONFIG|DATA)_HOME"
)


class AgentAccount:
    """The account of one agent, shared by its sessions in a project.

    Arguments:
        directory: the directory of the shared files.
        agent: name of the agent; empty for another command, whose limits are unknown.
        environ: the agent's environment.

    """

    def __init__(self, directory: Path, agent: str, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._agent = agent
        self._environ = environ
        self._own = 0.0
        self._own_uptime: float | None = None  # the same by the clock that nobody sets, if only that counts
        self._is_shared = False

    @cached_property
    def path(self) -> Path:
        """The shared file."""
        return self._directory / f"{self._agent}-{_digits(self._environ)}.json"

    @property
    def hint(self) -> dict[str, str]:
        """The command that ends the waiting at once, for people; empty if there is no shared file."""
        return {"hint": f"to try at once: rm {shlex.quote(str(self.path))}"} if self._is_there() else {}

    def refuse(self, until: float, now: float, *, is_stated: bool = True) -> None:
        """Record a usage limit, and share it with the other sessions.

        Arguments:
            until: end of the limit, in seconds since the epoch.
            now: in seconds since the epoch.
            is_stated: the service has named this time. Otherwise only its distance from now counts, and the
                wait is over after that, also if somebody sets the clock meanwhile.

        Raises:
            OSError: the shared file cannot be written.

        """
        self._own = until
        self._own_uptime = None if is_stated else uptime() + until - now
        self._is_shared = self._read(now) >= until
        if not self._agent or self._is_shared:
            return
        write(self._directory, self.path, until, self._own_uptime)
        self._is_shared = True

    def refused_until(self, now: float, delay: float = 0.0) -> float:
        """Return the end of the usage limit, in seconds since the epoch; 0 if there is none.

        Arguments:
            now: in seconds since the epoch.
            delay: seconds for which a limit counts after its end.

        """
        found = self._read(now, delay)
        if self._is_shared and not self._is_there():
            self._own, self._own_uptime = 0.0, None
        own = self._own if self._own_uptime is None else now + self._own_uptime - uptime()
        until = max(found, own)
        return until if until > now - delay else 0.0

    def _is_there(self) -> bool:
        return bool(self._agent) and self.path.exists()

    def _read(self, now: float, delay: float = 0.0) -> float:
        if not self._agent or not self._directory.is_dir():  # the usual case
            return 0.0
        return read(self.path, now, delay)


def read(path: Path, now: float, delay: float = 0.0) -> float:
    """Return the end of the limit in a shared file; 0 if it has none that counts.

    Arguments:
        now: in seconds since the epoch.
        delay: seconds for which a limit counts after its end.

    """
    try:
        return _FORMAT.read(path, lambda loaded: _end(loaded, now, delay))
    except (OSError, ValueError, OverflowError):
        return 0.0


def _end(loaded: Mapping[str, Any], now: float, delay: float) -> float:
    until = loaded["until"]
    if "uptime" in loaded and loaded.get("boot_id") == liveness.boot_id():
        until = now + float(loaded["uptime"]) - uptime()
    return _end_within_a_day(until, now - delay)


def write(directory: Path, path: Path, until: float, by_uptime: float | None = None) -> None:
    """Write the end of a limit into a shared file.

    Arguments:
        directory: of the file; it is made if it is missing.
        by_uptime: the end by the clock of this boot, if only that counts.

    Raises:
        OSError: it cannot be written.

    """
    directory.mkdir(exist_ok=True)
    if directory.is_symlink():
        raise OSError(errno.ELOOP, "a symlink is not followed", str(directory))
    fields = {"until": until}
    own = {} if by_uptime is None else {"uptime": by_uptime, "boot_id": liveness.boot_id()}
    files.replace(path, _FORMAT.encode(fields | own), sync=False)


def _end_within_a_day(until: float, now: float) -> float:
    """Return the end of a limit, if it is at most a day away; 0 for any other time."""
    return float(until) if now < until <= now + LONGEST_HOLD else 0.0


def _digits(environ: Mapping[str, str]) -> str:
    account = sorted(
        (name, value) for name, value in environ.items() if value and _ACCOUNT_VARIABLES.fullmatch(name)
    )
    return hashlib.sha256(json.dumps(account).encode()).hexdigest()[:_DIGITS]
