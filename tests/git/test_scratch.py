"""Private directories for temporary files: on a disk with room."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import scratch
from ralph_wrap.system import privileges, temporary
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory in which a directory can be made, and no file can be filled."""
    with mounted(tmp_path / "full", "-t", "tmpfs", "-o", "size=4k", "tmpfs") as disk:
        with contextlib.suppress(OSError), (disk / "all").open("wb") as file:
            file.write(bytes(1 << 14))
        (disk / "directory").mkdir()
        yield disk


@needs_mounts
def test_a_full_directory_for_temporary_files_is_passed_over(repo: Repo, full: Path) -> None:
    """Another one has room, so the review needs nothing of its user."""
    repo.git("branch", "ralph/a3f2")
    reviewed = command("review", "--json", cwd=repo.path, env={"TMPDIR": os.fspath(full)})
    assert reviewed.status == 0, reviewed.stderr
    assert [row["branch"] for row in json.loads(reviewed.stdout)["data"]] == ["ralph/a3f2"]


@needs_mounts
def test_a_full_directory_is_named_if_there_is_no_other(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its path, so that the user can make room there; nothing is left in it."""
    monkeypatch.setattr(temporary, "_USUAL", ())
    monkeypatch.setattr(privileges, "state_home", lambda _: full / "directory")
    with contextlib.ExitStack() as stack, pytest.raises(OSError, match="No space left") as caught:
        scratch.private_directory(stack, {"TMPDIR": os.fspath(full)}, (), "x-")
    assert caught.value.filename == os.fspath(full)
    assert sorted(path.name for path in full.iterdir()) == ["all", "directory"]
