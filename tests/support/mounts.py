"""File systems for a test, unmounted whatever happens."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from tests.support.needs import MOUNTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Path]:
    """Mount something at a directory, which is made; ``mount`` gets the options. Or skip the test."""
    MOUNTS.check()
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(("mount", *options, directory), check=True, capture_output=True)
    try:
        yield directory
    finally:
        subprocess.run(("umount", "--lazy", directory), check=True, capture_output=True)


def fill(filler: Path) -> None:
    """Fill the disk of a file with it, to the last page."""
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[Path]:
    """Mount a directory over itself, read-only."""
    with mounted(directory, "--bind", str(directory)):
        subprocess.run(("mount", "-o", "remount,bind,ro", directory), check=True, capture_output=True)
        yield directory
