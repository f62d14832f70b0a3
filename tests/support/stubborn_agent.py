"""An agent that leaves processes of every kind behind, all deaf to every signal that one can be deaf to.

Usage: stubborn_agent.py DIRECTORY ROLE…

There is one process for each role. It writes its pid to DIRECTORY/ROLE once it plays the role. The agent
itself is the role ``agent``, and leaves at once if no argument names this role.
"""

import os
import signal
import sys
import time
from pathlib import Path

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


def _stay(directory: Path, role: str) -> None:
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    if role == "group":
        os.setpgid(0, 0)
    if role in {"session", "daemon"}:
        os.setsid()
    if role == "daemon" and os.fork():
        os._exit(0)
    unfinished = directory / f".{role}"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(directory / role)
    if role == "agent":
        return
    while True:
        signal.pause()


def _main(directory: Path, roles: list[str]) -> None:
    for role in roles:
        if role != "agent" and not os.fork():
            _stay(directory, role)
    if "agent" in roles:
        _stay(directory, "agent")
    while any(not (directory / role).exists() for role in roles):
        time.sleep(0.01)
    (directory / "ready").touch()
    while "agent" in roles:
        signal.pause()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
