"""An agent that speaks as Claude Code does, and behaves oddly: usage: misbehaving_agent.py WAY.

It answers with the promise, unless its way is to be unable to.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PROMISE = "<promise>COMPLETE</promise>"
BIG = 50_000_000  # bytes of a long line
_MOMENT = 0.1  # seconds, in which the reader has read


def _line(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, **more}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def says(words: str) -> bytes:
    """Return a line with words that are not the final answer."""
    return _line("assistant", message={"id": "m", "content": [{"type": "text", "text": words}]})


ANSWER = _line("result", subtype="success", is_error=False, result=PROMISE)
"""The line of the final answer."""


def _write(content: bytes, to: int = 1) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(to, left) :]


def _in_two(content: bytes, position: int, between: bytes = b"") -> None:
    """Write the beginning, something else on stderr, and the rest."""
    _write(content[:position])
    time.sleep(_MOMENT)
    _write(between, 2)
    time.sleep(_MOMENT)
    _write(content[position:])


def _cut_character() -> None:
    words = says("à bientôt")
    _in_two(words, words.index("à".encode()) + 1)
    _write(ANSWER)


def _cut_value() -> None:
    _in_two(ANSWER, ANSWER.index(b"PLETE"))


def _cut_off() -> None:
    _write(says("Soon.") + ANSWER[: -len(b'"}\n')])


def _long_line() -> None:
    _write(
        b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"'
        + b"x" * BIG
        + b'"}]}}\n'
    )
    _write(ANSWER)


def _invalid() -> None:
    _write(b"\xff\xfe\xc3(\n" + says("So?").replace(b"?", b"\xff") + ANSWER.replace(b"<", b"\xc3\\n<", 1))


def _interleaved() -> None:
    _in_two(says("One."), 20, b"warning: ")
    _in_two(ANSWER, 20, b"odd\n")


def _silent() -> None:
    sys.exit(0)


def _unread() -> None:
    os.close(0)
    _write(ANSWER)


def _deaf_child(*, leaves: bool) -> None:
    reading, writing = os.pipe()
    if os.fork():
        os.read(reading, 1)
        return
    os.setsid()
    if leaves and os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("daemon").write_text("here")
    os.write(writing, b"x")
    while True:
        signal.pause()


def _daemonises() -> None:
    _deaf_child(leaves=True)
    _write(ANSWER)


def _other_group() -> None:
    _deaf_child(leaves=False)
    _write(says("Hm."))
    while True:
        signal.pause()


def _deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _write(says("Hm."))
    while True:
        signal.pause()


def _closed() -> None:
    _write(ANSWER)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    time.sleep(2 * _MOMENT)
    Path("late").write_text("done")


WAYS = {
    "cut-character": _cut_character,
    "cut-value": _cut_value,
    "cut-off": _cut_off,
    "long-line": _long_line,
    "invalid": _invalid,
    "interleaved": _interleaved,
    "silent": _silent,
    "unread": _unread,
    "daemonises": _daemonises,
    "other-group": _other_group,
    "deaf": _deaf,
    "closed": _closed,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
