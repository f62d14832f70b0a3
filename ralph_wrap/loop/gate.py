"""The gate: a promise counts only if the project's ``verify`` command passes.

It runs in the agent's workspace, environment and sandbox. What it leaves running ends with it. The next
prompt ends with the output of a gate that did not pass, so that the agent can mend what failed.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from ralph_wrap.config import Settings
from ralph_wrap.errors import AgentError
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.policy import CutReason, Iteration
from ralph_wrap.loop.project_command import CommandEnd, CommandRunner, ProjectCommand
from ralph_wrap.state.gate_memory import RememberedGate
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.text import readable

log = get_logger()

_LINES = 200  # of the output, at most
_SIZE = 16 << 10  # bytes of the output, at most
_REMEMBERED = 1 << 20  # bytes of the output that are kept while the command runs
_BEGIN = "---- ralph-wrap: the check of your work did not pass ----"
_END = "---- end of the output of the check ----"


NOT_RUN = "not run"
"""The result of a gate that says nothing about the work as it is now."""


class GateResult(NamedTuple):
    """The last run of the gate.

    Attributes:
        iteration: the iteration after which it ran.
        status: its exit status; 124 if it was ended.
        cut: the outside cause that ended it.
        seconds: how long it ran.
        outdated: something has changed since.

    """

    iteration: int
    status: int
    cut: CutReason | None
    seconds: float
    outdated: bool = False

    @property
    def passed(self) -> bool:
        """Whether the work is proven."""
        return self.status == 0 and self.cut is None

    @property
    def word(self) -> str:
        """The result in a word or two: ``passed``, ``failed``, or ``not run`` for the work as it is now."""
        if self.outdated or self.cut not in {None, CutReason.VERIFY_TIMEOUT}:
            return NOT_RUN
        return "passed" if self.passed else "failed"

    @property
    def outcome(self) -> str:
        """How it ended, after the name of the command."""
        if self.cut is CutReason.VERIFY_TIMEOUT:
            return f"was not done after {self.seconds:g} s"
        return f"ended with status {self.status}"


class Gate:
    """Runs the gate of one session.

    Arguments:
        settings: the command and its time limit, and the grace of what it leaves running.
        runner: runs it.
        context: of the session.
        relay: moves its output.
        environ: of the agent.

    Attributes:
        part: the end of the next prompt; empty unless the gate did not pass.
        last: the last run; ``None`` before the first one.

    """

    def __init__(
        self,
        settings: Settings,
        runner: CommandRunner,
        context: IterationContext,
        relay: OutputRelay,
        environ: Mapping[str, str],
    ) -> None:
        self._command = ProjectCommand(
            "verify", settings.verify, settings.verify_timeout, CutReason.VERIFY_TIMEOUT
        )
        self._grace = settings.grace
        self._runner = runner
        self._context = context
        self._relay = relay
        self._environ = environ
        self._runs = 0
        self._memory: RememberedGate | None = None
        self.part = b""
        self.last: GateResult | None = None
        earlier = context.earlier_gate
        if earlier is not None and earlier.is_unread and earlier.command == self._command.text:
            self.part = _prompt_part(earlier, "At the end of the session before this one")

    @property
    def summary(self) -> str:
        """The last result, for the line between two iterations; empty before the first one."""
        return f"verify {self.last.word}" if self.last else ""

    def check(self, number: int, iteration: Iteration) -> Iteration:
        """Run the gate, and return the iteration with what it proves.

        A signal, a request to stop, or the end of the session's time during the gate ends the loop as it does
        during an iteration.

        Raises:
            AgentError: the gate cannot be run at all.

        """
        self._runs += 1
        output = _Tail()
        with self._relay.heard_on_stderr(output.hear):
            ended = self._run(number)
        self.last = last = GateResult(number, ended.status, ended.cut, ended.seconds)
        self._log_result(last, promised=iteration.promised)
        has_failed = last.word == "failed"
        self._memory = RememberedGate(
            number,
            self._runs,
            last.word,
            self._command.text,
            last.status,
            last.seconds,
            last.outcome,
            output.text() if has_failed else "",
            is_unread=has_failed,
        )
        self._context.remember_gate(self._memory)
        if has_failed:
            self.part = _prompt_part(self._memory, "After the last iteration")
            return iteration._replace(verified=False)
        self.part = b""
        if last.passed:
            return iteration._replace(verified=True)
        return iteration._replace(verified=False, cut=last.cut)

    def note_reading(self) -> None:
        """Note that an agent has read the output of the last run."""
        self.part = b""
        if self._memory is not None and self._memory.is_unread:
            self._memory = self._memory._replace(output="", is_unread=False)
            self._context.remember_gate(self._memory)

    def note_change(self) -> None:
        """Note that the work may have changed since the last run."""
        if self.last is not None:
            self.last = self.last._replace(outdated=True)

    def report(self) -> dict[str, Any]:
        """Return ``verify`` of the report."""
        last = self.last
        return {
            "result": last.word if last else NOT_RUN,
            "command": self._command.text,
            "runs": self._runs,
            "iteration": last.iteration if last else None,
            "status": last.status if last else None,
            "seconds": last.seconds if last else None,
        }

    def _run(self, number: int) -> CommandEnd:
        """Run the command, then end what it has left running, but nothing of the agent."""
        with self._context.process_tree.apart():
            try:
                ended = self._runner.run(self._command, self._environ, number)
            except OSError as error:
                raise AgentError(
                    f"verify cannot be run: {error.strerror}: {self._command.shown}",
                    "sh has to be on the PATH",
                ) from None
            if ended.cut is None:
                self._context.process_tree.signal(signal.SIGTERM, except_group=0)
                self._context.end_leftovers(self._grace)
        return ended

    def _log_result(self, last: GateResult, *, promised: bool) -> None:
        if last.passed:
            log.event("verify.passed", f"verify passed: {self._command.shown}", iteration=last.iteration)
        elif last.word == "failed":
            counts = ", so the promise does not count" if promised else ""
            log.warning(
                "verify.failed",
                f"verify {last.outcome}{counts}",
                self._runner.output,
                iteration=last.iteration,
            )


class _Tail:
    """The last part of an output, in constant memory."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def hear(self, piece: bytes) -> None:
        """Take the next piece."""
        self._kept += piece
        if len(self._kept) > 2 * _REMEMBERED:
            del self._kept[:-_REMEMBERED]

    def text(self) -> str:
        """Return what an agent gets of it."""
        return excerpt(bytes(self._kept))


def excerpt(output: bytes) -> str:
    """Return the last 200 lines of an output as plain text, and of these at most 16 KB: the middle is cut."""
    lines = [readable(line) for line in output.decode("utf-8", "replace").split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    shown = "\n".join(lines[-_LINES:])
    encoded = shown.encode()
    if len(encoded) <= _SIZE:
        return shown
    half = _SIZE // 2
    missing = len(encoded) - 2 * half
    first, last = encoded[:half].decode(errors="ignore"), encoded[-half:].decode(errors="ignore")
    return f"{first}\n[… {missing:,} bytes are left out here …]\n{last}"


def _prompt_part(gate: RememberedGate, when: str) -> bytes:
    indented = "\n".join(f"    {line}" for line in gate.command.strip().splitlines())
    return (
        f"\n\n{_BEGIN}\n"
        "The task is done only when this command, run in this workspace, ends with status 0:\n\n"
        f"{indented}\n\n"
        f"{when} it {gate.outcome}. The end of its output:\n\n"
        f"{gate.output or '(it printed nothing)'}\n"
        f"{_END}\n"
    ).encode("utf-8", "surrogateescape")
