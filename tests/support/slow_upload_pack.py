"""git-upload-pack(1) behind a slow line: it sends its answer in pieces, and can stop in the middle for ever.

Arguments: seconds between two pieces, the number of pieces after which it is silent (0: never), repository.
It imports only the standard library, because git starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

PIECE = 1 << 14  # bytes


def main() -> None:
    """Serve one request."""
    pause, most = float(sys.argv[1]), int(sys.argv[2])
    with subprocess.Popen(("git-upload-pack", *sys.argv[3:]), stdout=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        number, answer = 0, serving.stdout.fileno()
        while piece := os.read(answer, PIECE):
            if number == most > 0:
                time.sleep(3600)
            if number:
                time.sleep(pause)
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            number += 1


if __name__ == "__main__":
    main()
