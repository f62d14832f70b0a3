"""An agent writes another content under the id of an object: git believes it, and we do not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.safe.genuine import require_genuine
from tests.support.git_shim import shim_git
from tests.support.merging import branch
from tests.support.repo import Repo
from tests.support.sessions import command, run
from tests.support.wait import eventually

TAMPERED, LEFT = 9, 6

FAKES = {
    "a file of the branch": ("ralph/aaaa:below/file.txt", "main:below/file.txt"),
    "a directory of the branch": ("ralph/aaaa:below", "main:below"),
    "the top directory of the branch": ("ralph/aaaa^{tree}", "main^{tree}"),
    "a file of the main branch": ("main:below/file.txt", "ralph/aaaa:below/file.txt"),
}
"""The object that is replaced, and the one whose content it gets."""


@pytest.fixture
def project(repo: Repo) -> Repo:
    """Return a project whose objects are loose, with a branch of an agent."""
    repo.write("below/file.txt", "base\n")
    repo.commit("base")
    branch(repo, "aaaa", {"below/file.txt": "EVIL\n"})
    return repo


def _replace(repo: Repo, name: str) -> tuple[str, Path, bytes]:
    """Replace an object, and return its id, its file and what was there."""
    oid, other = (repo.git("rev-parse", revision) for revision in FAKES[name])
    path, content = (repo.path / ".git/objects" / one[:2] / one[2:] for one in (oid, other))
    genuine = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content.read_bytes())
    return oid, path, genuine


@pytest.mark.parametrize("name", FAKES)
def test_diff_shows_no_object_that_was_replaced(project: Repo, name: str) -> None:
    """Plain git shows no change; ours names the object, and shows the change when it is back."""
    oid, path, genuine = _replace(project, name)
    assert "+EVIL" not in project.git("diff", "main", "ralph/aaaa", check=False)
    ended = command("diff", "aaaa", cwd=project.path)
    assert (ended.status, oid in ended.stderr, ended.stdout) == (TAMPERED, True, b"")
    path.write_bytes(genuine)
    assert b"+EVIL" in command("diff", "aaaa", cwd=project.path).stdout


@pytest.mark.parametrize("name", ["a file of the branch", "a directory of the branch"])
def test_merge_lands_no_object_that_was_replaced(project: Repo, name: str) -> None:
    """Plain git checks it out; ours leaves the branch, and lands it when the object is back."""
    before = project.head
    oid, path, genuine = _replace(project, name)
    ended = command("merge", "aaaa", cwd=project.path)
    assert (ended.status, oid in ended.stderr, project.head) == (LEFT, True, before), ended.stderr
    path.write_bytes(genuine)
    assert command("merge", "aaaa", cwd=project.path).status == 0
    assert (project.path / "below/file.txt").read_text() == "EVIL\n"


def test_apply_writes_no_object_that_was_replaced(project: Repo) -> None:
    """Plain git believes it; ours changes no file, and applies the work when the object is back."""
    branch(project, "bbbb", {"below/file.txt": "harmless\n"})
    project.git("branch", "-m", "ralph/bbbb", "ralph/aaaa-wip")
    oid, evil = (
        project.git("rev-parse", f"{name}:below/file.txt") for name in ("ralph/aaaa-wip", "ralph/aaaa")
    )
    project.git("branch", "-f", "ralph/aaaa", "main")
    path, other = (project.path / ".git/objects" / one[:2] / one[2:] for one in (oid, evil))
    genuine = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(other.read_bytes())
    assert project.git("show", "ralph/aaaa-wip:below/file.txt") == "EVIL"
    ended = command("apply", "aaaa", cwd=project.path)
    assert (ended.status, oid in ended.stderr) == (TAMPERED, True), ended.stderr
    assert (project.path / "below/file.txt").read_text() == "base\n"
    path.write_bytes(genuine)
    assert command("apply", "aaaa", cwd=project.path).status == 0
    assert (project.path / "below/file.txt").read_text() == "harmless\n"


@pytest.mark.parametrize("tree", [b"100644 file", b"100644 file\0short"])
def test_a_damaged_tree_is_an_error_and_no_traceback(project: Repo, tree: bytes) -> None:
    """Its id is right, so git takes it; an agent can write it."""
    damaged = project.path / ".git/damaged"
    damaged.write_bytes(tree)
    oid = project.git("hash-object", "-t", "tree", "--literally", "-w", str(damaged))
    tip = project.git("commit-tree", oid, "-p", "main", "-m", "damaged")
    project.git("update-ref", "refs/heads/ralph/aaaa", tip)
    for words, status in ((("diff", "aaaa"), TAMPERED), (("merge", "aaaa"), LEFT)):
        ended = command(*words, cwd=project.path)
        assert (ended.status, "a tree is damaged" in ended.stderr) == (status, True), ended.stderr


def test_large_files_are_not_all_in_memory(project: Repo) -> None:
    """Six files of 40 MB take 40 kB each in the repository; 240 MB of them do not fit into the limit."""
    content = project.path / ".git/zeros"
    for number in range(6):
        content.write_bytes(bytes(40_000_000) + str(number).encode())
        oid = project.git("hash-object", "-w", str(content))
        project.git("update-index", "--add", "--cacheinfo", f"100644,{oid},zeros{number}")
    tip = project.git("commit-tree", project.git("write-tree"), "-p", "main", "-m", "zeros")
    check = (
        "import os, pathlib, resource; resource.setrlimit(resource.RLIMIT_AS, (210_000_000,) * 2);"
        "from ralph_wrap.git import Git, git_environment;"
        "from ralph_wrap.git.safe.genuine import require_genuine;"
        f"require_genuine(Git(pathlib.Path.cwd(), git_environment(os.environ)), 'main^{{commit}}', '{tip}')"
    ).replace("main^{commit}", project.git("rev-parse", "main"))
    words = [sys.executable, "-c", check]
    subprocess.run(words, cwd=project.path, check=True)


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_genuine_objects_are_accepted(tmp_path: Path, kind: str) -> None:
    """Files, directories and a submodule that come, go and change their type; also two trees."""
    made = Repo(tmp_path / "made")
    made.path.mkdir()
    made.git("init", "-q", f"--object-format={kind}")
    made.write("one/two/three", "3\n")
    made.write("four", "4\n")
    before = made.commit("before")
    made.git("update-index", "--add", "--cacheinfo", f"160000,{before},sub")
    made.git("mv", "one/two/three", "five")
    shutil.rmtree(made.path / "one")
    made.write("one", "a file now\n")
    made.git("rm", "-q", "four")
    made.write("four/six", "a directory now\n")
    made.git("add", "one", "four")
    made.git("commit", "-q", "-m", "after")
    git = Git(made.path, git_environment(os.environ))
    require_genuine(git, before, made.head)
    require_genuine(git, made.git("rev-parse", "HEAD^{tree}"), before)


def _unpack(project: Repo, tmp_path: Path) -> None:
    """Turn the objects of each pack into loose ones, whose files a test can replace."""
    for pack in [*(project.path / ".git/objects/pack").glob("*.pack")]:
        moved = pack.rename(tmp_path / "pack")
        with moved.open("rb") as content:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=project.path, stdin=content, check=True)


def test_resume_puts_no_replaced_work_into_a_worktree(project: Repo, tmp_path: Path) -> None:
    """The saved work stays where it is, and comes back when the object is back."""
    ended = run(project.path, "-n", "1", "--", "sh", "-c", "cat saved.txt; echo saved >saved.txt")
    saved = f"{ended.report['saved']}:saved.txt"
    _unpack(project, tmp_path)
    oid, other = (project.git("rev-parse", name) for name in (saved, "main:below/file.txt"))
    path, content = (project.path / ".git/objects" / one[:2] / one[2:] for one in (oid, other))
    genuine = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content.read_bytes())
    refused = command("resume", ended.report["id"], cwd=project.path)
    assert (refused.status != 0, oid in refused.stderr, refused.stdout) == (True, True, b""), refused.stderr
    path.write_bytes(genuine)
    assert command("resume", ended.report["id"], cwd=project.path).stdout == b"saved\n"


@pytest.mark.parametrize("isolation", ["require", "clone"])
def test_a_worktree_that_a_failed_resume_leaves_goes_later(
    project: Repo, tmp_path: Path, isolation: str
) -> None:
    """A process works in it, so it stays; ``rm`` takes it after that, and the saved work is still there."""
    options = ("-n", "1", "--isolation", isolation)
    ended = run(project.path, *options, "--", "sh", "-c", "echo saved >saved.txt")
    _unpack(project, tmp_path)
    agent_id, saved = ended.report["id"], project.git("rev-parse", f"{ended.report['saved']}:saved.txt")
    other = project.git("rev-parse", "main:below/file.txt")
    path, content_of = (project.path / ".git/objects" / one[:2] / one[2:] for one in (saved, other))
    genuine = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content_of.read_bytes())
    places = f"{project.path}/.ralph/worktrees/*/ {project.path}/.ralph/clones/*/"
    sleep = f"cd $d && exec sleep 600 <&- >/dev/null 2>&1 & echo $! >> {tmp_path}/pids"
    shim = f'*" read-tree --reset "*) $REAL "$@"; s=$?; for d in {places}; do {sleep}; done; exit $s ;;'
    refused = command("resume", agent_id, cwd=project.path, env={"PATH": shim_git(tmp_path / "shim", shim)})
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    for pid in pids:
        with suppress(ProcessLookupError):  # a place that is not there has no process
            os.kill(pid, signal.SIGKILL)
    assert (refused.status, "processes work in it" in refused.stderr) == (TAMPERED, True), refused.stderr
    eventually(lambda: not any(map(psutil.pid_exists, pids)), "the end of the processes")
    path.write_bytes(genuine)  # until then, work that cannot be read keeps the worktree
    removed = command("rm", agent_id, cwd=project.path)
    assert removed.status == 0, removed.stderr
    assert [*project.path.glob(".ralph/*/*-????/")] == []
    assert project.show(f"{ended.report['saved']}:saved.txt") == b"saved\n"
