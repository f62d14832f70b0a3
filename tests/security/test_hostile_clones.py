"""What a hostile agent leaves in its clone, its bundle and its replica: nothing runs, nothing else comes in.

Each attack has a counterpart that shows that it works where the defence is missing.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import bundle
from ralph_wrap.state.record import SessionRecord
from tests.support.repo import make_repo
from tests.support.sessions import Result, Session, command

if TYPE_CHECKING:
    from tests.support.repo import Repo

ID = "beef"
SESSION = f"20260101T000000Z-{ID}"


def refs(repo: Repo) -> list[str]:
    """Return the names of all refs."""
    return repo.git("for-each-ref", "--format=%(refname)").split()


@pytest.fixture
def sender(repo: Repo, tmp_path: Path) -> Repo:
    """Return a repository of the agent with a commit more than the project has."""
    subprocess.run(("git", "clone", "--quiet", repo.path, tmp_path / "sender"), check=True)
    other = type(repo)(tmp_path / "sender")
    other.git("switch", "--quiet", "--create", f"ralph/{ID}")
    other.write("new", "new\n")
    other.commit("new")
    return other


def delivered(repo: Repo, sender: Repo, *names: str) -> Path:
    """Write a bundle with some refs where a session in a container would, and return it."""
    path = repo.path / ".ralph" / "clones" / "run" / "bundles" / f"{SESSION}.bundle"
    path.parent.mkdir(parents=True, exist_ok=True)
    sender.git("bundle", "create", "--quiet", path, *names, "^main")
    return path


def review(repo: Repo) -> Result:
    """Run a command that takes bundles in."""
    return command("review", cwd=repo.path)


def test_a_bundle_is_taken_in(repo: Repo, sender: Repo) -> None:
    """The attacks below differ from a good bundle: its branch comes in, and then the bundle goes."""
    path = delivered(repo, sender, f"ralph/{ID}")
    assert review(repo).status == 0
    assert repo.git("rev-parse", f"ralph/{ID}") == sender.head
    assert review(repo).status == 0
    assert not path.exists()


@pytest.mark.parametrize(
    "ref",
    [
        "refs/heads/main",
        "refs/heads/ralph/cafe",
        f"refs/heads/ralph/{ID}-x",
        f"refs/ralph/snapshots/{ID}/../../../heads/x",
        f"refs/ralph/clones/{ID}",
        "refs/tags/v1",
        "HEAD",
    ],
)
def test_a_ref_of_another_id_keeps_a_bundle_out(repo: Repo, sender: Repo, ref: str) -> None:
    """Neither this ref nor any other of the bundle comes in, and the bundle stays."""
    path = delivered(repo, sender, f"ralph/{ID}")
    line = f"{sender.head} refs/heads/ralph/{ID}\n".encode()
    path.write_bytes(path.read_bytes().replace(line, line + f"{sender.head} {ref}\n".encode()))
    before = refs(repo)
    result = review(repo)
    assert "is no ref of agent" in result.stderr
    assert refs(repo) == before
    assert path.exists()


def test_a_branch_of_another_session_is_not_moved(repo: Repo, sender: Repo) -> None:
    """A bundle with the id of a branch that no clone has made is refused."""
    repo.git("branch", f"ralph/{ID}")
    delivered(repo, sender, f"ralph/{ID}")
    assert f"there is another branch ralph/{ID}" in review(repo).stderr
    assert repo.git("rev-parse", f"ralph/{ID}") == repo.head


def test_two_bundles_do_not_move_a_branch_of_another_session(repo: Repo, sender: Repo) -> None:
    """The first one brings no branch, so it would only make the id look like that of a clone."""
    repo.git("branch", f"ralph/{ID}")
    sender.git("update-ref", f"refs/ralph/snapshots/{ID}/1", "HEAD")
    delivered(repo, sender, f"refs/ralph/snapshots/{ID}/1")
    assert f"there is another branch ralph/{ID}" in review(repo).stderr
    delivered(repo, sender, f"ralph/{ID}")
    review(repo)
    assert repo.git("rev-parse", f"ralph/{ID}") == repo.head


def test_a_snapshot_that_a_bundle_replaces_is_kept(repo: Repo, sender: Repo) -> None:
    """It may be the only ref of uncommitted work."""
    mine = repo.git("commit-tree", "-p", "main", "-m", "mine", "main^{tree}")
    repo.git("update-ref", f"refs/ralph/snapshots/{ID}/1", mine)
    sender.git("update-ref", f"refs/ralph/snapshots/{ID}/1", "HEAD")
    delivered(repo, sender, f"refs/ralph/snapshots/{ID}/1")
    review(repo)
    assert repo.git("rev-parse", f"refs/ralph/snapshots/{ID}/1") == sender.head
    assert repo.git("rev-parse", f"refs/ralph/snapshots/{ID}/commit-1") == mine


def test_what_the_user_has_done_to_a_branch_stays(repo: Repo, sender: Repo) -> None:
    """A branch that was moved here since is not moved again: the work comes in beside it."""
    delivered(repo, sender, f"ralph/{ID}")
    review(repo)
    mine = repo.git("commit-tree", "-p", f"ralph/{ID}", "-m", "mine", "main^{tree}")
    repo.git("update-ref", f"refs/heads/ralph/{ID}", mine)
    sender.write("more", "more\n")
    sender.commit("more")
    delivered(repo, sender, f"ralph/{ID}")
    assert "was moved here since" in review(repo).stderr
    assert repo.git("rev-parse", f"ralph/{ID}") == mine
    assert repo.git("rev-parse", f"refs/ralph/snapshots/{ID}/commit-1") == sender.head


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory", "oversized"])
def test_only_a_plain_file_of_limited_size_is_read(repo: Repo, sender: Repo, kind: str) -> None:
    """A good bundle behind a symlink, a FIFO, a directory or too many bytes: refused at once."""
    path = delivered(repo, sender, f"ralph/{ID}")
    if kind == "oversized":
        os.truncate(path, bundle.LARGEST + 1)
    else:
        path.rename(path.with_name("good"))
        if kind == "symlink":
            path.symlink_to("good")
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()
    result = review(repo)
    assert result.status == 0
    assert path.name in result.stderr
    assert f"refs/heads/ralph/{ID}" not in refs(repo)


def test_a_symlink_as_the_directory_of_bundles_is_not_followed(repo: Repo, sender: Repo) -> None:
    """Bundles elsewhere are not looked for."""
    path = delivered(repo, sender, f"ralph/{ID}")
    path.parent.rename(repo.path.parent / "elsewhere")
    path.parent.symlink_to(repo.path.parent / "elsewhere")
    assert review(repo).status == 0
    assert f"refs/heads/ralph/{ID}" not in refs(repo)


def test_malformed_objects_stay_out(repo: Repo, sender: Repo) -> None:
    """A tree with .git in it would be checked out as a repository; plain git fetches it."""
    blob = sender.git("hash-object", "-w", "new")
    entries = f"100644 blob {blob}\tconfig".encode()
    inner = (
        subprocess.run(("git", "mktree"), cwd=sender.path, input=entries, capture_output=True, check=True)
        .stdout.decode()
        .strip()
    )
    raw = b"40000 .git\0" + bytes.fromhex(inner)
    tree = (
        subprocess.run(
            ("git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"),
            cwd=sender.path,
            input=raw,
            capture_output=True,
            check=True,
        )
        .stdout.decode()
        .strip()
    )
    commit = sender.git("commit-tree", "-p", "HEAD", "-m", "bad", tree)
    sender.git("update-ref", f"refs/heads/ralph/{ID}", commit)
    path = delivered(repo, sender, f"ralph/{ID}")
    assert "hasDotgit" in review(repo).stderr
    assert repo.git("cat-file", "-e", commit, check=False) == ""
    assert f"refs/heads/ralph/{ID}" not in refs(repo)
    assert [*(repo.path / ".git" / "objects").glob("ralph-wrap-*")] == []
    repo.git("fetch", "--quiet", path, f"ralph/{ID}:taken")
    assert repo.git("rev-parse", "taken") == commit


def test_a_bundle_without_its_objects_stays_out(repo: Repo, sender: Repo) -> None:
    """A tip whose tree is nowhere would be a branch that git cannot read."""
    path = delivered(repo, sender, f"ralph/{ID}")
    header, _, _ = path.read_bytes().partition(b"\n\n")
    empty = subprocess.run(
        ("git", "pack-objects", "--stdout", "-q"), cwd=sender.path, input=b"", capture_output=True, check=True
    ).stdout
    path.write_bytes(header + b"\n\n" + empty)
    assert "is not taken in" in review(repo).stderr
    assert f"refs/heads/ralph/{ID}" not in refs(repo)


# A dead clone


def dead(repo: Repo, work: str) -> Path:
    """Kill a session in a clone, and return the clone."""
    line = ("--delay", "1h", "--isolation", "clone", "--", "sh", "-ec", work)
    with Session(repo.path, *line) as session:
        session.wait_for("work.bundled")
        session.send(signal.SIGKILL)
        session.process.wait()
        return repo.path / ".ralph" / "clones" / session.directory.name


def test_no_program_of_a_clone_or_its_replica_runs(repo: Repo) -> None:
    """The agent has put commands wherever git looks for them; a sweep saves its work and runs none."""
    clone = dead(repo, "echo new > new; git add new; git commit -qm new; echo b > b")
    ran = repo.path.parent / "ran"
    program = repo.path.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\nexec cat\n")
    program.chmod(0o755)
    replica = repo.path / ".ralph" / "run" / "replicas" / clone.name
    for git_dir in (clone / ".git", replica):
        with (git_dir / "config").open("a") as config:
            config.write(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {git_dir}/hooks\n")
            config.write(f'[filter "x"]\n\tclean = {program}\n\tsmudge = {program}\n')
        (git_dir / "info").mkdir(exist_ok=True)
        (git_dir / "info" / "attributes").write_text("* filter=x\n")
        (git_dir / "hooks").mkdir(exist_ok=True)
        (git_dir / "hooks" / "reference-transaction").symlink_to(program)
    (clone / "later").write_text("later\n")
    assert command("sweep", cwd=repo.path).status == 0
    assert repo.show(f"ralph/{clone.name[-4:]}-wip:later") == b"later\n"
    assert not ran.exists()


def test_plain_git_would_run_them(repo: Repo) -> None:
    """The counterpart: one plain git command in such a clone runs a program of the agent."""
    clone = dead(repo, "true")
    ran = repo.path.parent / "ran"
    (clone / ".git" / "info" / "attributes").write_text("* filter=x\n")
    (clone / "new").write_text("new\n")
    subprocess.run(("git", "config", "filter.x.clean", f"touch {ran}; cat"), cwd=clone, check=True)
    subprocess.run(("git", "add", "new"), cwd=clone, check=True)
    assert ran.exists()
    assert command("sweep", cwd=repo.path).status == 0


def test_alternates_to_another_repository_are_not_followed(repo: Repo, tmp_path: Path) -> None:
    """A clone that borrows from another repository of the user cannot bring its secret commit in."""
    secret = make_repo(tmp_path / "secret")
    secret.write("secret", "secret\n")
    commit = secret.commit("secret")
    clone = dead(repo, "echo new > new")
    replica = repo.path / ".ralph" / "run" / "replicas" / clone.name
    for git_dir in (clone / ".git", replica):
        with (git_dir / "objects" / "info" / "alternates").open("a") as alternates:
            alternates.write(f"{secret.path}/.git/objects\n")
    branch = clone / ".git" / "refs" / "heads" / "ralph" / clone.name[-4:]
    branch.parent.mkdir(exist_ok=True)
    branch.write_text(f"{commit}\n")
    assert subprocess.run(("git", "cat-file", "-e", commit), cwd=clone, check=False).returncode == 0
    assert command("sweep", cwd=repo.path).status == 5
    assert subprocess.run(("git", "cat-file", "-e", commit), cwd=repo.path, check=False).returncode != 0
    assert (clone / "new").read_text() == "new\n"


@pytest.mark.parametrize("name", ["HEAD", "index", "packed-refs", "refs/heads/x", "objects/aa"])
def test_a_fifo_or_symlink_does_not_hang_a_sweep(repo: Repo, name: str) -> None:
    """The sweep says what is wrong, and the clone stays with all its files."""
    clone = dead(repo, "echo new > new")
    path, aside = clone / ".git" / name, repo.path.parent / "aside"
    if path.exists():
        path.rename(aside)
    if name == "objects/aa":
        path.symlink_to(repo.path / ".git")
    else:
        os.mkfifo(path)
    result = command("sweep", cwd=repo.path)
    assert result.status == 5
    assert (clone / "new").read_text() == "new\n"
    path.unlink()
    if aside.exists():
        aside.rename(path)
    assert command("sweep", cwd=repo.path).status == 0
    assert repo.show(f"ralph/{clone.name[-4:]}-wip:new") == b"new\n"


def test_files_that_only_ralph_wrap_writes_are_not_copied_from_a_clone(repo: Repo) -> None:
    """An exclude file of ours in the agent's repository would hide its files from the save."""
    work = "echo new > new; echo '*' > .git/ralph-wrap-exclude; : > .git/ralph-wrap-links; mkdir -p .git/info"
    clone = dead(repo, f"{work}; echo '*' > .git/info/exclude")
    assert command("sweep", cwd=repo.path).status == 0
    assert repo.show(f"ralph/{clone.name[-4:]}-wip:new") == b"new\n"


@pytest.mark.parametrize("home", ["clones/run", "run"])
def test_an_agent_moves_no_branch_of_the_user(repo: Repo, sender: Repo, home: str) -> None:
    """A bundle and a record that an agent can write name such a branch; ours in ``.ralph/run`` may do so."""
    repo.git("branch", "theirs")
    repo.git("update-ref", f"refs/ralph/clones/{ID}", "theirs")
    sender.git("branch", "--quiet", "theirs")
    state = repo.path / ".ralph" / home
    for name in ("bundles", f"sessions/{SESSION}"):
        (state / name).mkdir(parents=True)
    sender.git("bundle", "create", "--quiet", state / "bundles" / f"{SESSION}.bundle", "theirs", "^main")
    record = SessionRecord(
        id=ID, session=SESSION, pid=1, start_time=1.0, boot_id="", pid_namespace="", host="", branch="theirs"
    )
    (state / "sessions" / SESSION / "record.json").write_bytes(record.to_json())
    assert review(repo).status == 0
    moved = repo.git("rev-parse", "theirs") == sender.git("rev-parse", "theirs")
    assert moved == (home == "run")
