"""An agent that writes much: usage: talkative_agent.py MEGABYTES GO.

Waits until the file GO is there, and writes into it the SHA-256 of everything that it has printed.
"""

import hashlib
import os
import sys
import time
from pathlib import Path


def _main(megabytes: int, go: Path) -> None:
    while not go.exists():
        time.sleep(0.01)
    block = os.urandom(1 << 16)
    digest = hashlib.sha256()
    for number in range(megabytes * 16):
        piece = number.to_bytes(8, "big") + block[8:]
        digest.update(piece)
        left = memoryview(piece)
        while left:
            left = left[os.write(1, left) :]
    go.write_text(digest.hexdigest())


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]))
