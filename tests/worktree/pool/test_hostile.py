"""The pool among people and agents that do unexpected things: work by hand, links, odd configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.repo import make_repo
from tests.support.sessions import command
from tests.support.wait import CAP, eventually
from tests.worktree.pool.filling import configure, fill, run, settle, warm

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")


SESSION = "20260101T000000Z-abcd"

_KILLED = """
import os, signal, sys
from importlib import import_module

module, name = sys.argv.pop(1).rsplit(".", 1)
sys.argv[0] = "ralph-wrap"
setattr(import_module(module), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
from ralph_wrap.__main__ import main
main()
"""

_PAUSED = """
import os, sys, time
from importlib import import_module

module, name = sys.argv.pop(1).rsplit(".", 1)
gate = sys.argv.pop(1)
sys.argv[0] = "ralph-wrap"
function = getattr(import_module(module), name)
def paused(*arguments, **options):
    result = function(*arguments, **options)
    open(f"{gate}.reached", "w").close()
    while not os.path.exists(f"{gate}.open"):
        time.sleep(0.01)
    return result
setattr(import_module(module), name, paused)
from ralph_wrap.__main__ import main
main()
"""


def killed_at(repo: Repo, function: str, *arguments: str) -> None:
    """Run a command that is killed when it calls a function."""
    words = (sys.executable, "-c", _KILLED, function, *arguments)
    assert subprocess.run(words, cwd=repo.path, check=False, capture_output=True).returncode == -9


def paused_after(repo: Repo, gate: Path, function: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command that waits behind a function until a gate is opened, and wait until it is there."""
    words = (sys.executable, "-c", _PAUSED, function, os.fspath(gate), *arguments)
    process = subprocess.Popen(words, cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(Path(f"{gate}.reached").exists, f"{function} to be done")
    return process


def go_on(process: subprocess.Popen[bytes], gate: Path) -> str:
    """Open the gate, wait for the end, and return the messages."""
    Path(f"{gate}.open").touch()
    return process.communicate(timeout=3 * CAP)[1].decode()


# -- a full disk --


@needs_mounts
def test_what_does_not_fit_gives_the_disk_back(tmp_path: Path) -> None:
    """What was checked out until the disk was full is taken back, each time: the disk is full of it never."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=12m", "none") as small:
        repo = make_repo(small / "project")
        repo.write(".gitignore", ".ralph/\n")
        for number in range(4):
            repo.write(f"large-{number}", os.urandom(1_000_000))
        repo.commit("large")
        (repo.path / ".ralph").mkdir()
        configure(repo, "pool = 2")
        for _ in range(2):
            result = command("pool", "--fill", cwd=repo.path)
            assert (result.status, "unable to write file" in result.stderr) == (125, True), result.stderr
            (there,) = warm(repo)
            assert (there / "large-3").stat().st_size == 1_000_000
            eventually(lambda: not [*repo.path.glob(".ralph/run/trash/*")], "the trash to be emptied")
            assert len(repo.worktrees()) == 1
        (repo.path / "large-0").unlink()
        configure(repo, "pool = 0")
        assert fill(repo) == []

        def is_free() -> bool:
            found = os.statvfs(small)
            return found.f_bavail * found.f_frsize > 4_500_000

        eventually(is_free, "the disk to be free again")


# -- a fill that was killed --


def test_an_unfinished_one_is_made_anew(project: Repo) -> None:
    """No agent has worked in it: what a checkout has left of it goes."""
    (there,) = warm(project)
    project.git("worktree", "remove", "--force", "--force", there)
    killed_at(project, "ralph_wrap.system.files.sync_file_system", "pool", "--fill")
    (unfinished,) = warm(project)
    (unfinished / "same").write_text("sa")  # git was killed while it wrote this
    assert [entry["ready"] for entry in fill(project)] == [True]
    assert not unfinished.exists()


@pytest.mark.parametrize(
    "work",
    [
        "echo mine > same",
        "echo mine > mine",
        "mkdir build; echo mine > build/x",
        "git commit -q --allow-empty -m mine",
        "git checkout -q -b mine",
    ],
)
def test_an_unfinished_one_with_work_in_it_stays(project: Repo, work: str) -> None:
    """The user took it for a worktree like any other."""
    (there,) = warm(project)
    project.git("worktree", "remove", "--force", "--force", there)
    killed_at(project, "ralph_wrap.system.files.sync_file_system", "pool", "--fill")
    (unfinished,) = warm(project)
    subprocess.run(("sh", "-ec", work), cwd=unfinished, check=True)
    before = project.git("status", "--porcelain", "--ignored", cwd=unfinished)
    head = project.git("rev-parse", "HEAD", cwd=unfinished)
    printed = command("pool", "--fill", cwd=project.path)
    assert printed.status == 0
    assert "is kept, and no session gets it" in printed.stderr
    assert project.git("status", "--porcelain", "--ignored", cwd=unfinished) == before
    assert project.git("rev-parse", "HEAD", cwd=unfinished) == head


# -- work that is done by hand in a warm worktree --


@pytest.mark.parametrize(
    "work",
    ["echo key > my.log", "mkdir build; git init -q build/n", "mkdir -p build; echo x > build/x"],
    ids=["ignored file", "repository in an ignored directory", "ignored directory"],
)
def test_ignored_files_made_by_hand_are_not_taken(project: Repo, tmp_path: Path, work: str) -> None:
    """They would be shown to a session, and deleted with its worktree."""
    (there,) = warm(project)
    subprocess.run(("sh", "-ec", work), cwd=there, check=True)
    before = sorted(there.rglob("*"))
    assert b"my.log" not in run(project, "ls -A; ls -A build 2>&1 || true").stdout
    settle(tmp_path)
    configure(project, "pool = 0")
    assert command("pool", "--fill", cwd=project.path).status == 0
    assert sorted(there.rglob("*")) == before


def test_one_with_a_process_in_it_is_not_taken(project: Repo) -> None:
    """A shell would find itself in an agent's worktree, and commit to its branch."""
    (there,) = warm(project)
    with subprocess.Popen(("sleep", "600"), cwd=there) as somebody:
        try:
            assert os.fsencode(there.name) not in run(project, "git worktree list | grep -v warm; pwd").stdout
            assert there.is_dir()
        finally:
            somebody.kill()


def test_work_that_comes_at_the_last_moment_is_saved(project: Repo, tmp_path: Path) -> None:
    """Behind the last look: the checkout meets it and fails, and it is saved, not deleted."""
    (there,) = warm(project)
    project.write("changed", "moved on\n")
    project.commit("moved on")
    gate = tmp_path / "gate"
    options = ("--isolation", "require", "-n", "1", "--", "true")
    session = paused_after(project, gate, "ralph_wrap.worktree.warm.choose", "run", *options)
    (there / "changed").write_text("precious\n")
    (there / "precious").write_text("precious\n")
    printed = go_on(session, gate)
    (saved,) = project.git("for-each-ref", "--format=%(refname)", "refs/heads/ralph/*-wip").split()
    assert project.show(f"{saved}:changed") == b"precious\n", printed
    assert project.show(f"{saved}:precious") == b"precious\n"
    settle(tmp_path)


def test_one_that_a_process_keeps_from_its_removal_is_removed_later(project: Repo, tmp_path: Path) -> None:
    """The session works in the plain directory then. Its record still names the branch, or ``rm`` fails."""
    (there,) = warm(project)
    project.write("changed", "moved on\n")
    project.commit("moved on")
    gate = tmp_path / "gate"
    session = paused_after(project, gate, "ralph_wrap.worktree.warm.choose", "run", "-n", "1", "--", "true")
    (there / "changed").write_text("precious\n")
    with subprocess.Popen(("sleep", "600"), cwd=there) as inside:
        said = go_on(session, gate)
        inside.kill()
    assert ("worktree kept" in said, "no isolation" in said) == (True, True), said
    (left,) = project.path.glob(".ralph/worktrees/*")
    removed = command("rm", left.name[-4:], cwd=project.path)
    assert removed.status == 0, removed.stderr
    assert project.show(f"ralph/{left.name[-4:]}-wip:changed") == b"precious\n"
    settle(tmp_path)


def test_work_that_comes_during_the_removal_stays(project: Repo, tmp_path: Path) -> None:
    """Also where the commit that it stood at is on no branch any more."""
    (there,) = warm(project)
    project.git("commit", "-q", "--amend", "-m", "other")
    configure(project, "pool = 0")
    gate = tmp_path / "gate"
    removal = paused_after(project, gate, "ralph_wrap.worktree.remove.sync_repository", "pool", "--fill")
    (there / "work").write_text("work\n")
    printed = go_on(removal, gate)
    assert "is kept, and no session gets it" in printed
    assert (there / "work").read_text() == "work\n"


def test_one_whose_commit_was_amended_away_is_removed(project: Repo) -> None:
    """So that the test above can fail; and no ref is left of it."""
    project.git("commit", "-q", "--amend", "-m", "other")
    configure(project, "pool = 0")
    assert fill(project) == []
    assert project.git("for-each-ref", "refs/ralph/") == ""


# -- what is not ours --


def test_a_link_among_kept_files_is_not_followed(project: Repo, tmp_path: Path) -> None:
    """Another user's directory would be moved into a worktree, and deleted with it."""
    foreign = tmp_path / "foreign"
    (foreign / "b").mkdir(parents=True)
    (foreign / "b" / "f").write_text("theirs\n")
    project.write(".gitignore", ".ralph/\na/\n")
    project.write("a/t", "t\n")
    project.git("add", "-f", "a/t")
    project.commit("rule")
    configure(project, "pool = 2", 'pool_keep = ["a/b"]')
    kept = project.path / ".ralph/run/pool/kept" / SESSION
    kept.mkdir(parents=True)
    (kept / "a").symlink_to(foreign)
    fill(project)
    assert (foreign / "b" / "f").read_text() == "theirs\n"


def test_a_link_in_the_place_of_a_kept_directory_is_not_followed(project: Repo, tmp_path: Path) -> None:
    """Nor is anything moved to where it leads."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (project.path / ".ralph/run/pool/kept").symlink_to(foreign)
    configure(project, "pool = 1", 'pool_keep = ["build"]')
    run(project, "mkdir build; echo x > build/x")
    settle(tmp_path)
    assert [*foreign.iterdir()] == []


def test_a_directory_not_named_like_a_session_is_left(project: Repo) -> None:
    """It belongs to the user."""
    mine = project.path / ".ralph/run/pool/kept/my-work/f"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine\n")
    fill(project)
    assert mine.read_text() == "mine\n"


def test_the_trash_of_another_repository_is_left(project: Repo) -> None:
    """Its name alone makes it no worktree of ours."""
    leaving = project.path / ".ralph/run/trash" / f"{SESSION}.leaving"
    leaving.mkdir(parents=True)
    (leaving / ".git").write_text("gitdir: /some/other/repository/.git/worktrees/warm-00000000\n")
    fill(project)
    assert (leaving / ".git").exists()


def test_a_worktree_that_was_half_taken_is_left_to_the_sweep(project: Repo) -> None:
    """The fill does not call it unknown: following the hint would remove it."""
    killed_at(
        project,
        "ralph_wrap.worktree.warm.complete",
        "run",
        "--isolation",
        "require",
        "-n",
        "1",
        "--",
        "true",
    )
    printed = command("pool", "--fill", cwd=project.path)
    assert (printed.status, "no worktree that git knows" in printed.stderr) == (0, False)
    assert command("sweep", cwd=project.path).status == 0
    assert not [*project.path.glob(".ralph/worktrees/*")]
    assert project.git("for-each-ref", "refs/heads/ralph/", "refs/ralph/") == ""


# -- what a warm worktree cannot become --


def test_conversions_that_have_changed_are_those_of_the_base(project: Repo) -> None:
    """A file that stays the same in the commit may be another one on the disk."""
    project.write(".gitattributes", "* text eol=crlf\n")
    project.commit("attributes")
    assert run(project, "cat same").stdout == b"same\r\n"


def test_kept_files_are_not_shown_to_a_base_that_does_not_ignore_them(project: Repo, tmp_path: Path) -> None:
    """Or one session's files would be committed by another one."""
    configure(project, "pool = 1", 'pool_keep = ["build"]')
    run(project, "mkdir build; echo secret > build/x")
    settle(tmp_path)
    project.write(".gitignore", ".ralph/\n")
    project.commit("no rule")
    assert run(project, "git status --porcelain; ls").stdout.decode().split() == [
        *("changed", "dir", "file.txt", "removed", "same"),
    ]


def test_a_directory_that_became_a_file_is_checked_out(project: Repo, tmp_path: Path) -> None:
    """Git overwrites what is ignored."""
    configure(project, "pool = 1", 'pool_keep = ["build"]')
    run(project, "mkdir build; echo built > build/x")
    settle(tmp_path)
    project.write(".gitignore", ".ralph/\n")
    project.write("build", "a file\n")
    project.commit("build is a file")
    assert run(project, "cat build").stdout == b"a file\n"


@pytest.mark.parametrize("setting", ["core.logAllRefUpdates=always", "core.ignoreStat=true"])
def test_odd_configuration_makes_no_endless_pool(project: Repo, setting: str) -> None:
    """A new entry is ready, and a session takes it."""
    project.git("config", *setting.split("="))
    configure(project, "pool = 2")
    for _ in range(3):
        assert [entry["ready"] for entry in fill(project)] == [True, True]
    inodes = {path.stat().st_ino for path in warm(project)}
    assert int(run(project, "stat -c %i .").stdout) in inodes


def test_a_sparse_checkout_has_no_pool(project: Repo) -> None:
    """It is said, and nothing is made."""
    project.git("sparse-checkout", "set", "dir")
    configure(project, "pool = 2")
    result = command("pool", "--fill", cwd=project.path)
    assert result.status == 125
    assert "the checkout is sparse" in result.stderr
    assert len(warm(project)) == 1


def test_the_pool_has_the_projects_commit_and_not_a_sessions(project: Repo, tmp_path: Path) -> None:
    """An agent may fill it, too."""
    script = "git commit -q --allow-empty -m secret; ralph-wrap pool --fill"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert run(project, f"PATH={path}; {script}").status == 0
    settle(tmp_path)
    assert [entry["commit"] for entry in fill(project)] == [project.git("rev-parse", "HEAD")]


def test_a_link_and_a_kept_directory_of_one_name(project: Repo) -> None:
    """The link is what was asked for on the command line."""
    (project.path / "build").mkdir()
    configure(project, "pool = 1", 'pool_keep = ["build"]')
    assert run(project, "readlink build", "--link", "build").stdout == b"../../../build\n"


def test_the_dead_are_swept_though_the_commit_they_came_from_is_gone(project: Repo) -> None:
    """It was amended away, and collected."""
    project.git("commit", "-q", "--amend", "-m", "amended")
    project.write("new", "n\n")
    project.commit("new")
    options = ("--isolation", "require", "-n", "1", "--", "true")
    killed_at(project, "ralph_wrap.worktree.create.transaction._check_out", "run", *options)
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "-q", "--prune=now")
    swept = command("sweep", cwd=project.path)
    assert (swept.status, [*project.path.glob(".ralph/worktrees/*")]) == (0, [])


def test_the_dead_leave_nothing_of_the_commit_they_came_from(project: Repo) -> None:
    """No agent has made it in the new session."""
    project.git("commit", "-q", "--amend", "-m", "amended")
    options = ("--isolation", "require", "-n", "1", "--", "true")
    killed_at(project, "ralph_wrap.worktree.create.transaction._check_out", "run", *options)
    assert command("sweep", cwd=project.path).status == 0
    assert project.git("for-each-ref", "refs/heads/ralph/", "refs/ralph/") == ""
