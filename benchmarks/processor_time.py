"""Run a command, and print the seconds of processor time of it and of all processes that it has left."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def main() -> int:
    """Run the command in our arguments, wait also for its orphans, and return its exit status."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    process = subprocess.Popen(
        sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    status = process.wait()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)
    return status


if __name__ == "__main__":
    sys.exit(main())
