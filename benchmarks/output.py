"""What an agent's output costs: CPU time to read each format, and plain text, and to pass it on.

The lines are those of a real turn (``tests/agents/streams``), which are short, again and again. Counted is
the CPU time of the session with all that it runs, git and the agent (``cat``) included.

The agent looks up the most memory that the session has had (`proc(5)`: VmHWM). What ``wait4`` says of it
counts that of the benchmark, too: a child has the memory of its parent until its ``exec``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios import PROGRAM, Verdict, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scenarios import Repository

SIZE = 300_000_000  # bytes; the start and the end of a session are counted, too
LIMIT = 2.0  # seconds for each 100 MB: 50 MB/s
_HUNDRED_MB = 100_000_000  # bytes
_STREAMS = Path(__file__).parent.parent / "tests" / "agents" / "streams"
_AGENT = 'cat "$0"; grep VmHWM "/proc/$PPID/status" >"$1"'
_TEXT = b"The quick brown fox jumps over the lazy dog.\n"


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim for each format."""
    repository = make_repository(directory / "output", files or 100)
    for output in ("text", "claude", "codex", "opencode", "gemini"):
        unit = _TEXT if output == "text" else (_STREAMS / output / "tools.jsonl").read_bytes()
        stream = directory / f"{output}.stream"
        with stream.open("wb") as file:
            for _ in range(SIZE // len(unit)):
                file.write(unit)
        runs = [_run(repository, output, stream) for _ in range(repeat or 3)]
        size = stream.stat().st_size
        seconds = statistics.median(seconds for seconds, _ in runs) / size * _HUNDRED_MB
        average = len(unit) // unit.count(b"\n")
        detail = (
            f"{_HUNDRED_MB / seconds / 1e6:.0f} MB/s, {average} bytes a line,"
            f" resident at most {max(most for _, most in runs):.1f} MB"
        )
        yield Verdict(f"CPU time for 100 MB of output, {output}", seconds, LIMIT, " s", detail)


def _run(repository: Repository, output: str, stream: Path) -> tuple[float, float]:
    """Return seconds of CPU time, and the session's most memory in MB of 1,000,000 bytes."""
    configuration = repository.path / ".ralph" / "config.toml"
    configuration.parent.mkdir(exist_ok=True)
    memory = stream.with_suffix(".memory")
    command = json.dumps(["sh", "-c", _AGENT, str(stream), str(memory)])
    configuration.write_text(f'[agents.measured]\ncommand = {command}\noutput = "{output}"\n')
    words = (PROGRAM, "run", "--agent", "measured", "--prompt", "x", "--max-iterations", "1")
    with (
        subprocess.Popen(
            words,
            cwd=repository.path,
            env={**os.environ, "RALPH_TRUST": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as session,
        subprocess.Popen(("cat",), stdin=session.stdout, stdout=subprocess.DEVNULL),
    ):
        assert session.stdout is not None
        session.stdout.close()
        _, status, used = os.wait4(session.pid, 0)
        session.returncode = os.waitstatus_to_exitcode(status)
    if session.returncode:
        raise RuntimeError(f"the session ended with {session.returncode}")
    return used.ru_utime + used.ru_stime, int(memory.read_text().split()[1]) * 1024 / 1e6
