"""Whether a disk has room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system.disk import first_full, full_directory
from tests.support.mounts import fill, mounted
from tests.support.needs import needs_mounts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_mounts

WITHOUT_SIZES = {
    "ramfs": ("-t", "ramfs"),
    "a tmpfs without a limit": ("-t", "tmpfs", "-o", "size=0"),
    "a tmpfs without any limit": ("-t", "tmpfs", "-o", "size=0,nr_inodes=0"),
}


@pytest.mark.parametrize("options", WITHOUT_SIZES.values(), ids=WITHOUT_SIZES)
def test_a_disk_that_tells_no_size_is_not_full(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Its zeros mean that nobody knows how much room there is, so a file that can be written decides."""
    with mounted(tmp_path / "disk", *options, "none") as disk:
        assert (first_full((disk,)), full_directory(OSError("another reason"), disk)) == (None, None)


def test_a_disk_that_tells_its_size_can_be_full(tmp_path: Path) -> None:
    """Control: of bytes."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=8m", "none") as disk:
        assert first_full((disk,)) is None
        fill(disk / "filler")
        assert first_full((disk,)) == disk
