"""Dead sessions whose files are not as they should be: none of them passes for finished."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import files
from tests.support.directory_listing import listing
from tests.support.orphans import orphan, sweep
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo


def test_without_a_usable_git_an_orphan_stays(repo: Repo) -> None:
    """No sweep can look at its work then; once git works again, it is finished."""
    left = orphan(repo)
    config = repo.path / ".git" / "config"
    before = config.read_text()
    config.write_text(f"{before}[[broken\n")
    result = sweep(repo)
    assert result.status == 5
    assert "its work cannot be read" in result.stderr
    assert ("to see what is wrong: git -C" in result.stderr, "doctor" in result.stderr) == (True, False)
    assert left.record.exists()
    config.write_text(before)
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


@pytest.mark.parametrize("field", [None, "branch", "base"])
def test_a_worktree_that_git_does_not_know_any_more_stays(repo: Repo, field: str | None) -> None:
    """Its registration is gone, or its record names none: the files stay, and a message names them."""
    left = orphan(repo)
    if field is None:
        for path in sorted(left.registration.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        left.registration.rmdir()
    else:
        left.change(**{field: None})
    for command_line in (("sweep",), ("rm", left.id)):
        result = command(*command_line, cwd=repo.path)
        assert result.status == 5, command_line
        assert "its worktree was moved or replaced" in result.stderr
        assert (left.worktree / "new").read_text() == "new\n"
    left.worktree.rename(repo.path.parent / "saved")
    assert sweep(repo).status == 0
    assert not left.record.exists()


@pytest.mark.parametrize("name", ["agents", "sessions", "trash"])
def test_a_symlink_in_the_registry_is_not_followed(repo: Repo, tmp_path: Path, name: str) -> None:
    """An agent could lead us anywhere: nothing there is looked for, changed or deleted."""
    assert run(repo.path, "-n", "1", "--", "true").status == 0
    outside = tmp_path / "outside"
    outside.mkdir()
    for file in ("poetry.lock", "abcd.lock", "20260101T000000Z-abcd"):
        (outside / file).touch()
    directory = repo.path / ".ralph" / "run" / name
    directory.rename(directory.with_name(f"{name}-before"))
    directory.symlink_to(outside)
    before = listing(outside)
    sweep(repo)
    run(repo.path, "-n", "1", "--", "true")
    assert listing(outside) == before


def test_a_fifo_as_event_log_hangs_no_sweep(repo: Repo) -> None:
    """The session is finished all the same."""
    left = orphan(repo)
    (left.directory / "events.jsonl").unlink()
    os.mkfifo(left.directory / "events.jsonl")
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


def test_a_branch_that_is_checked_out_is_not_moved(repo: Repo, script: Callable[[str], str]) -> None:
    """Later work in the worktree gets a hidden ref instead."""
    agent_id = (
        command("spawn", "-n", "1", "--", script("echo x > new"), cwd=repo.path).stdout.decode().strip()
    )
    command("logs", "-f", agent_id, cwd=repo.path)
    (worktree,) = repo.path.glob(".ralph/worktrees/*")
    repo.git("switch", "--quiet", f"ralph/{agent_id}-wip")
    tip = repo.commit("taken over")
    (worktree / "new").write_text("edited\n")
    assert command("rm", agent_id, cwd=repo.path).status == 0
    assert (repo.head, repo.git("status", "--porcelain", "--untracked-files=no")) == (tip, "")
    assert repo.show(f"refs/ralph/snapshots/{agent_id}/commit-1:new") == b"edited\n"


def test_a_file_with_another_name_elsewhere_keeps_its_mode(repo: Repo, script: Callable[[str], str]) -> None:
    """A hard link in a worktree shares its mode with the user's own file."""
    own = repo.write("own", "x\n")
    own.chmod(0o444)
    repo.write(".gitignore", ".ralph/worktrees/\ncache/\n")
    repo.commit("rule")
    agent = script('mkdir -p cache/locked; ln "$RALPH_PROJECT/own" cache/locked/link; chmod a-w cache/locked')
    assert run(repo.path, "-n", "1", "--", agent).status == 0
    assert list(repo.path.glob(".ralph/worktrees/*")) == []
    assert stat.S_IMODE(own.stat().st_mode) == 0o444


def test_everything_is_on_the_disk_before_a_worktree_goes(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has not synced what it committed, and its files are the only other copy."""
    from ralph_wrap import Session as Inside  # noqa: PLC0415
    from ralph_wrap import Settings  # noqa: PLC0415

    synced: list[bool] = []
    command = ("git", "commit", "--allow-empty", "-m", "work")
    with Inside(Settings(project=repo.path, command=command, max_iterations=1)) as session:
        path = session.workspace.path
        monkeypatch.setattr(files, "sync_file_system", lambda _place: synced.append(path.exists()))
        session.run()
    assert synced == [True]
    assert not path.exists()


@pytest.mark.parametrize(
    ("work", "is_synced"),
    [
        ("true", False),
        ("echo x > new; rm new", False),
        ("echo x > new", True),
        ("git commit -q --allow-empty -m work", True),
        ("git commit -q --allow-empty -m work; git reset -q --hard HEAD~", True),
        ("git switch -q -c other; git commit -q --allow-empty -m work; git switch -q -", True),
        ("git reset -q --hard HEAD~", True),
        ("git switch -q --detach", True),
        ("echo x | git hash-object -w --stdin", True),
        ("git repack -q -a -d", True),
    ],
)
def test_only_a_session_that_left_nothing_is_not_synced(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, work: str, *, is_synced: bool
) -> None:
    """A sync also writes what other processes have written, which can take seconds."""
    from ralph_wrap import Session as Inside  # noqa: PLC0415
    from ralph_wrap import Settings  # noqa: PLC0415

    repo.commit("second")
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_file_system", synced.append)
    with Inside(Settings(project=repo.path, command=("sh", "-c", work), max_iterations=1)) as session:
        session.run()
    assert not session.workspace.path.exists()
    assert bool(synced) == is_synced


def test_syncing_reports_what_the_kernel_says(tmp_path: Path) -> None:
    """A place that is there is synced; one that is not is an error."""
    files.sync_file_system(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.sync_file_system(tmp_path / "absent")


def test_a_new_session_tells_of_foreign_ones(repo: Repo) -> None:
    """Perhaps they are dead, as after a reboot: only the user knows."""
    left = orphan(repo)
    left.change(boot_id="another", host="elsewhere")
    with Session(repo.path, "-n", "1", "--", "true") as session:
        result = session.finish()
    assert [printed["event"] for printed in result.warnings] == ["session.left"]
    assert result.warnings[0]["hint"].endswith(f"ralph-wrap sweep --adopt {left.id}")
