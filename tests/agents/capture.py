"""Capture what the real agents print, into ``streams/``: ``python -m tests.agents.capture [AGENT[/CASE]]…``.

Paths of this machine are replaced, and nothing else. No test compares what is captured: look at the
diff, and at what ``test_streams.py`` says of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ralph_wrap.agents import known
from tests.agents.programs import PROGRAMS, with_subscription, without_login
from tests.agents.refusals import REFUSALS, UNTIL
from tests.agents.script import Dropping, Failing, Hanging, Limited, Say, Shell, Turn, Write
from tests.agents.server import Model
from tests.support.repo import make_repo

STREAMS = Path(__file__).with_name("streams")
"""What was captured, by agent and case."""

PROMISE = "<promise>COMPLETE</promise>"
METERED = "metered"
"""The case in which the agent reports its tokens after each turn."""
CASES: dict[str, list[Turn]] = {
    "answer": [Say(f"All is well.\n{PROMISE}", thought="Is it?")],
    "thought": [Say("Not yet.", thought=PROMISE)],
    "tools": [
        Shell(f"echo hello > made; git add made; git commit -qm made; echo '{PROMISE}'", "Working."),
        Write("notes.txt", "noted\n"),
        Say("Made it."),
    ],
    "limit": [Limited(UNTIL)],
    "limit-unknown": [Limited()],
    "refused": [Failing(400)],
    "overload": [Failing(529)],
    "dropped": [Dropping()],
    "interrupted": [Shell("echo one", "Working."), Hanging()],
    METERED: [Shell("echo one", "Working."), Say("Made it.")],
    "pieces": [Say("One, two, three.\nFour.", pieces=5)],
}
PROMPT = f"Do the task. When it is done, answer {PROMISE}\n"
_PATIENCE = {"interrupted": 30.0}  # seconds
# The first tells nothing, the second does not end, and the third needs no login: it tells of its own server.
_SILENT = {"opencode/dropped", "codex/unconnected", "opencode/no-login"}
_UNCONNECTED = "unconnected"  # a case without a server
NO_LOGIN = "no-login"
"""The case without any login; what a stream does not have is in ``no-login.err``."""
_MOST = 120.0  # the same for those that end by themselves


def capture(agent: str, case: str) -> None:
    """Run one agent through one case."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        top = Path(name)
        home = top / "home"
        home.mkdir()
        repo = make_repo(top / "project")
        refusal = REFUSALS[agent].get(case)
        script = [refusal.answer] if refusal else CASES.get(case, [])
        with Model([script], top / "iteration", late=case == _UNCONNECTED) as model:
            env = os.environ | PROGRAMS[agent].set_up(home, model.url, top / "iteration")
            env |= refusal.env if refusal else {}
            if case == "limit" and agent == "claude":
                env = with_subscription(env)
            if case == NO_LOGIN:
                env = without_login(agent, env)
            path = STREAMS / agent / f"{case}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            began = time.monotonic()
            definition = known(agent)
            words = definition.metering if case == METERED else ()
            with path.open("wb") as stream, (top / "errors").open("wb") as errors:
                process = subprocess.Popen(
                    (*(word.replace("{prompt}", PROMPT) for word in definition.command), *words),
                    cwd=repo.path,
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=stream,
                    stderr=errors,
                    process_group=0,
                )
                _finish(process, _PATIENCE.get(case, _MOST))
        content, complaints = (
            written.read_bytes()
            .replace(os.fsencode(repo.path), b"/project")
            .replace(os.fsencode(top), b"/tmp")
            for written in (path, top / "errors")
        )
        path.write_bytes(content)
        if not content:
            path.unlink()
        if not content or (case == NO_LOGIN and complaints):
            path.with_suffix(".err").write_bytes(complaints)
        took = time.monotonic() - began
        print(f"{agent}/{case}: status {process.returncode}, {took:.1f} s, {len(content)} bytes")  # noqa: T201


def _finish(process: subprocess.Popen[bytes], patience: float) -> None:
    assert process.stdin is not None
    process.stdin.write(PROMPT.encode())
    process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _main(*asked: str) -> None:
    for agent in PROGRAMS:
        for case in [*CASES, *REFUSALS[agent], NO_LOGIN, _UNCONNECTED]:
            if f"{agent}/{case}" in _SILENT or (case == METERED and not known(agent).metering):
                continue
            if not asked or {agent, f"{agent}/{case}"} & {*asked}:
                capture(agent, case)


if __name__ == "__main__":
    _main(*sys.argv[1:])
