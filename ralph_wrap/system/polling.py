"""How often a process looks at the files that other processes write, and how a command waits meanwhile.

Sessions, containers and machines that share a project tell each other things in files: records, requests to
stop, logs. Whoever waits for a change reads the file again after :data:`POLL_INTERVAL`. Events of the kernel
(inotify(7)) would not replace that: none comes for a change on another machine, or on the other side of some
mounts (https://man7.org/linux/man-pages/man7/inotify.7.html, *Limitations and caveats*).
"""

from __future__ import annotations

import select

POLL_INTERVAL = 0.5
"""Seconds between two looks at a file."""


def reader_stays(descriptor: int, seconds: float) -> bool:
    """Wait this many seconds, or until the reader of a pipe has gone; return whether it is still there.

    Arguments:
        descriptor: the end of the pipe that we write to; a file or a terminal has a reader always.
        seconds: how long to wait.

    """
    poll = select.poll()
    poll.register(descriptor, 0)  # poll reports POLLERR and POLLHUP in any case
    return not poll.poll(seconds * 1000)
