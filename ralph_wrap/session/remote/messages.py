"""What a session prints about its remote."""

from __future__ import annotations

from collections.abc import Sequence

from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import command

log = get_logger()


class MirrorMessages:
    """The messages of one session; each reason is printed once.

    Arguments:
        remote: name of the remote.

    """

    def __init__(self, remote: str) -> None:
        self._remote = remote
        self._printed: set[str] = set()

    def failed(self, reason: str) -> None:
        """Print that a push or a fetch failed."""
        self._once(
            f"the session is not on {self._remote} yet: {reason}", "the session goes on, and tries again"
        )

    def diverted(self, ref: str, agent_id: str) -> None:
        """Print that another program has moved a branch of the session on the remote."""
        self._once(
            f"another program has moved {ref} on {self._remote}",
            f"this session pushes to refs/ralph/rescue/{agent_id}/ instead",
        )

    def fenced(self, agent_id: str, session: str) -> None:
        """Print that another machine has taken the session over."""
        log.warning(
            "mirror.fenced",
            f"another machine goes on with session {agent_id}: this one ends its agent",
            Commands.of(
                f"its work goes to refs/ralph/rescue/{agent_id}/{session}/ on {self._remote}",
                command("ralph-wrap", "fetch", "--remote", self._remote),
            ),
        )

    def incomplete(self, missing: Sequence[str], reason: str) -> None:
        """Print what the remote does not have at the end of the session.

        Arguments:
            missing: full names of refs here.
            reason: of the last failure; empty if there was no time.

        """
        what = ", ".join(missing) or "the end of the session"
        push = command("git", "push", self._remote, *(f"{ref}:{ref}" for ref in missing))
        log.warning(
            "mirror.incomplete",
            f"{self._remote} does not have {what}: {reason or 'there was no time for it'}",
            Commands.of("the work is in this repository", *([push] if missing else [])),
        )

    def without_submodules(self, lines: Sequence[str]) -> None:
        """Print which work in submodules the remote does not have.

        Arguments:
            lines: one for each submodule.

        """
        log.warning(
            "mirror.without_submodules",
            f"{self._remote} does not have the work in submodules: {'; '.join(lines)}",
            "it is on this machine, where the exit report says; push it to the submodule's own remote",
        )

    def _once(self, message: str, hint: str) -> None:
        if message not in self._printed:
            self._printed.add(message)
            log.warning("mirror.failed", message, hint)
