"""How ignored files are copied into a worktree, for each command that makes one."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.git_shim import shim_git
from tests.support.orphans import sweep
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.worktree.create.copied import configure, copied, files_in, left_out

pytestmark = pytest.mark.usefixtures("ended", "trusted")


SH = ("-n", "1", "--", "sh", "-c")

LIST = "find . -name .git -prune -o ! -type d -print"


# How they are copied


def test_mode_and_time_are_kept(app: Repo) -> None:
    """Of files, and the modes of the directories that hold them."""
    source = app.path / ".env"
    os.utime(source, ns=(10**18, 10**18 + 123_456_789))
    app.write("web/node_modules/run", executable=True)
    (app.path / "web" / "node_modules").chmod(0o700)
    configure(app, ".env", "node_modules")
    names = ".env web/node_modules/run web/node_modules"
    ended = run(app.path, *SH, f"stat -c %a {names}; stat -c %y .env")
    assert ended.stdout == b"600\n755\n700\n2001-09-09 01:46:40.123456789 +0000\n"


def test_a_copy_is_the_agents_own(app: Repo) -> None:
    """What it writes there is not in the project."""
    configure(app, ".env")
    assert run(app.path, *SH, "echo other >> .env").status == 0
    assert (app.path / ".env").read_text() == "KEY=secret\n"


def test_a_file_of_holes_takes_no_room(app: Repo) -> None:
    """A disk image of 50 GB with a few bytes in it."""
    with (app.path / ".env.img").open("wb") as image:
        image.seek(50 << 30)
        image.write(b"end")
    configure(app, "*.img")
    ended = run(app.path, *SH, "stat -c '%s %b' .env.img; tail -c 3 .env.img")
    size, blocks, end = ended.stdout.split()
    assert (int(size), int(blocks) < 1000, end) == ((50 << 30) + 3, True, b"end")


def test_many_files_are_copied(app: Repo) -> None:
    """More than a command line or a pipe holds."""
    for number in range(50):
        directory = app.path / "web" / "node_modules" / f"package-{number}" / "a-longer-name-of-a-directory"
        directory.mkdir(parents=True)
        for one in range(100):
            (directory / f"a-rather-long-name-of-a-file-{one}.js").write_text("x")
    configure(app, "node_modules/")
    ended = run(app.path, *SH, f"{LIST} | wc -l")
    assert (copied(ended), int(ended.stdout)) == ([5001], 5004)


def test_one_file_that_cannot_be_copied_keeps_no_other_from_it(
    app: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is gone once it was listed: one warning, and the session goes on."""
    case = f'*" check-ignore --verbose "*) rm -f {app.path}/.env ;;'
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", case))
    configure(app, ".env*")
    ended = run(app.path, *SH, LIST)
    assert files_in(ended) == ["web/.env.local"]
    assert left_out(ended) == [
        "not copied into the worktree: .env (cannot be copied: No such file or directory)"
    ]


@pytest.mark.parametrize("failing", ["ls-files --others", "check-ignore --verbose"])
def test_a_git_that_fails_is_reported(app: Repo, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """The session goes on, in its worktree and without the copies."""
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", f'*" {failing} "*) exit 128 ;;'))
    configure(app, ".env*")
    ended = run(app.path, *SH, LIST)
    assert (files_in(ended), len(left_out(ended)), ended.report["fallback"]) == ([], 1, None)


def test_a_signal_cuts_copying_short(app: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent is started, and nothing is left."""
    case = '*" ls-files --others "*) kill -TERM $PPID ;;'
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", case))
    (app.path / ".env.link").symlink_to("file.txt")
    configure(app, ".env.link")
    ended = run(app.path, *SH, "touch $RALPH_PROJECT/../ran")
    assert (ended.status, copied(ended), app.worktrees()) == (128 + signal.SIGTERM, [0], [])
    assert not (app.path.parent / "ran").exists()


# Each way to start and to end them


def test_spawn_copies_as_well(app: Repo) -> None:
    """The worktree that stays has them until ``rm``."""
    configure(app, ".env")
    started = command("spawn", *SH, "cat .env", cwd=app.path)
    assert started.status == 0, started.stderr
    eventually(lambda: [*app.path.glob(".ralph/run/sessions/*/report.json")], "the report")
    [kept] = app.path.glob(".ralph/worktrees/*")
    assert (kept / ".env").read_text() == "KEY=secret\n"
    assert command("rm", kept.name, cwd=app.path).status == 0
    assert app.worktrees() == []


def test_the_plain_root_gets_no_copies(app: Repo) -> None:
    """It is the checkout itself."""
    configure(app, ".env")
    assert copied(run(app.path, "--isolation", "off", *SH, "true")) == []


def test_a_sweep_removes_copies_too(app: Repo) -> None:
    """After a kill, saving none of them."""
    configure(app, ".env*")
    with Session(app.path, *SH, "echo x > new; sleep 600") as session:
        eventually(lambda: [*app.path.glob(".ralph/worktrees/*/new")], "the agent's work")
        session.send(signal.SIGKILL)
        session.process.wait()
    assert sweep(app).status == 0
    [wip] = [branch for branch in app.branches() if branch.endswith("-wip")]
    assert app.git("diff", "--name-only", "main", wip) == "new"
    assert (app.worktrees(), (app.path / ".env").read_text()) == ([], "KEY=secret\n")


# Large files


@pytest.mark.parametrize(("given", "seen"), [("1", "1"), (None, "unset")])
def test_large_files_are_downloaded_as_the_user_wants(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, given: str | None, seen: str
) -> None:
    """Git LFS is asked by a variable, in our checkout and in the agent's; we neither set nor remove it."""
    repo.write(".gitattributes", "*.bin filter=lfs\n")
    repo.write("large.bin", "pointer\n")
    repo.commit("large")
    repo.git("config", "filter.lfs.smudge", "cat; echo ${GIT_LFS_SKIP_SMUDGE-unset}")
    if given is not None:
        monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", given)
    ended = run(repo.path, *SH, "cat large.bin; echo ${GIT_LFS_SKIP_SMUDGE-unset}")
    assert ended.stdout.decode().split() == ["pointer", seen, seen]
