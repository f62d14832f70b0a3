"""What would go wrong with mounts and room; each check is seen to fail, and to pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralph_wrap.commands.doctor import examine, storage
from tests.commands.doctor.world import World, checked, failing, verdict_of
from tests.support.mounts import mounted, read_only
from tests.support.needs import needs_mounts
from tests.support.repo import Repo, make_repo

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


# Mounts and room


def test_a_project_that_can_be_written(repo: Repo, host: Path) -> None:
    """On one file system."""
    kind = storage.kind(repo.path)
    assert kind
    assert verdict_of(examine(repo.path, os.environ, host), "mounts") == ("ok", f"{kind}, writable")


@needs_mounts
@pytest.mark.parametrize("part", ["", "/.git"])
def test_a_project_that_is_read_only(repo: Repo, host: Path, part: str) -> None:
    """Or its repository."""
    with read_only(Path(f"{repo.path}{part}")) as path:
        found = examine(repo.path, os.environ, host)
    assert verdict_of(found, "mounts") == ("FAIL", f"{path} is mounted read-only")
    assert checked(found, "mounts").fix == "mount it without :ro"


@needs_mounts
def test_worktrees_on_another_file_system(repo: Repo, host: Path) -> None:
    """Worth a note."""
    with mounted(repo.path / ".ralph/worktrees", "-t", "tmpfs", "none") as path:
        found = examine(repo.path, os.environ, host)
    assert verdict_of(found, "mounts") == (
        "note",
        f"{path} is on another file system (tmpfs) than {repo.path}",
    )
    assert failing(found) == []


@needs_mounts
def test_a_project_that_goes_with_its_container(tmp_path: Path, host: Path, box: World) -> None:
    """A note in a container, nothing special elsewhere."""
    # Of the files of a container, which are an overlay themselves, no other one can be made.
    with mounted(tmp_path / "layers", "-t", "tmpfs", "none") as top:
        for part in ("lower", "upper", "work"):
            (top / part).mkdir()
        layers = f"lowerdir={top}/lower,upperdir={top}/upper,workdir={top}/work"
        with mounted(tmp_path / "merged", "-t", "overlay", "-o", layers, "none") as merged:
            repo = make_repo(merged / "project")
            verdicts = [examine(repo.path, os.environ, root) for root in (host, box.root)]
    assert [verdict_of(found, "mounts")[0] for found in verdicts] == ["ok", "note"]


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /a\\040b rw - tmpfs none rw
31 22 0:27 / /work rw master:1 - virtiofs share rw
32 31 0:28 / /work/in rw - xfs /dev/sdb rw
33 31 0:29 / /work/in rw - nfs4 server:/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/workshop", "ext4"),
        ("/a b/c", "tmpfs"),
        ("/work", "virtiofs"),
        ("/work/in/there", "nfs4"),
    ],
)
def test_the_kind_of_a_file_system(tmp_path: Path, path: str, kind: str) -> None:
    """By the innermost, and there the latest, mount."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert storage.kind(Path(path), table) == kind
    assert storage.kind(Path(path), tmp_path / "absent") == ""


def test_room_for_a_worktree(repo: Repo, host: Path) -> None:
    """The check says how much room a worktree takes."""
    repo.write("large", bytes(range(256)) * (3 << 12))
    repo.git("add", "large")
    verdict, said = verdict_of(examine(repo.path, os.environ, host), "disk")
    assert verdict == "ok"
    assert said.endswith(f"left on {repo.path}; a worktree takes 3.0 MiB in 2 files")


@needs_mounts
@pytest.mark.parametrize(
    ("options", "said"), [("size=8m", "2.6 MiB left"), ("size=16m,nr_inodes=90", "inodes left")]
)
def test_no_room_for_a_worktree(tmp_path: Path, host: Path, options: str, said: str) -> None:
    """Of bytes, or of inodes."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", options, "none") as small:
        repo = make_repo(small / "project")
        repo.write("large", bytes(4 << 20))
        repo.git("add", "large")
        if "nr_inodes" not in options:
            free = os.statvfs(small)
            (small / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - (26 << 20) // 10))
        found = examine(repo.path, os.environ, host)
    assert failing(found) == ["disk"]
    assert said in verdict_of(found, "disk")[1]


@needs_mounts
def test_a_disk_that_tells_no_size_is_not_called_full(tmp_path: Path, host: Path) -> None:
    """Zeros of the file system mean that it does not count its blocks."""
    with mounted(tmp_path / "disk", "-t", "ramfs", "none") as disk:
        found = examine(make_repo(disk / "project").path, os.environ, host)
    verdict, said = verdict_of(found, "disk")
    assert (verdict, said.startswith("an unknown amount left on ")) == ("ok", True)


# What it keeps


def test_what_is_kept_is_said(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes and refs; a lot is worth a note, and no failure."""
    repo.write(".ralph/run/sessions/one/output.log", "x" * (2 << 20))
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", repo.head)
    found = examine(repo.path, os.environ, host)
    assert verdict_of(found, "kept") == ("ok", ".ralph takes 2.0 MiB, and 1 ref keeps work below refs/ralph")
    monkeypatch.setattr(storage, "_MUCH", 1 << 20)
    found = examine(repo.path, os.environ, host)
    assert checked(found, "kept").fix == "to see what is due: ralph-wrap clean --dry-run"
    assert failing(found) == []
