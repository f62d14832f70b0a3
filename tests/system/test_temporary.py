"""Where temporary files go."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ralph_wrap.errors import RalphError
from ralph_wrap.system import temporary
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts


def test_the_users_choice_comes_first(tmp_path: Path) -> None:
    """Then the usual directories."""
    found = [*temporary.candidates({"TMPDIR": os.fspath(tmp_path)})]
    assert found == [tmp_path, Path("/tmp"), Path("/var/tmp")]


@pytest.mark.parametrize("name", ["", ".", "tmp"])
def test_a_relative_choice_does_not_count(name: str) -> None:
    """It would be below the current directory, which is usually a checkout."""
    assert [*temporary.candidates({"TMPDIR": name})] == [Path("/tmp"), Path("/var/tmp")]


def test_no_temporary_file_is_in_the_project(tmp_path: Path) -> None:
    """Neither below it nor by a symlink that leads there."""
    (tmp_path / "project" / "tmp").mkdir(parents=True)
    (tmp_path / "link").symlink_to("project/tmp")
    for choice in (tmp_path / "project", tmp_path / "project" / "tmp", tmp_path / "link"):
        environ = {"TMPDIR": os.fspath(choice)}
        assert choice not in [*temporary.candidates(environ, [tmp_path / "project"])]
        assert choice in [*temporary.candidates(environ, [tmp_path / "another"])]


def test_a_directory_that_cannot_be_used_is_passed_over(tmp_path: Path) -> None:
    """The next one is taken, and the probe leaves nothing there."""
    usable = tmp_path / "usable"
    usable.mkdir()
    assert temporary.temporary_directory({"TMPDIR": os.fspath(usable)}) == usable
    assert list(usable.iterdir()) == []
    assert temporary.temporary_directory({"TMPDIR": os.fspath(tmp_path / "absent")}) == Path("/tmp")


def test_it_is_never_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what Python's own function ends with; without a place there is an error that says why."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    environ = {"TMPDIR": os.fspath(tmp_path / "absent")}
    with pytest.raises(RalphError) as caught:
        temporary.temporary_directory(environ, [Path("/tmp"), Path("/var/tmp"), tmp_path])
    assert caught.value.message == "no directory for temporary files can be written"
    monkeypatch.setattr(temporary, "_USUAL", ())
    with pytest.raises(RalphError) as caught:
        temporary.temporary_directory(environ)
    assert caught.value.message.endswith(f"({tmp_path}/absent: No such file or directory)")
    assert "docker run --tmpfs /tmp:exec" in caught.value.hint
    assert list((tmp_path / "here").iterdir()) == []


@needs_mounts
def test_a_full_directory_cannot_be_written(tmp_path: Path) -> None:
    """Although its permissions say so."""
    with mounted(tmp_path / "full", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as full:
        temporary.require_writable(full)
        with pytest.raises(OSError, match="No space left"), (full / "all").open("wb") as file:
            file.write(bytes(1 << 20))
        assert os.access(full, os.W_OK)
        with pytest.raises(OSError, match="No space left") as caught:
            temporary.require_writable(full)
        assert caught.value.errno == errno.ENOSPC
        assert [path.name for path in full.iterdir()] == ["all"]
