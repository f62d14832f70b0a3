"""Sessions that hold a part of the repository, and directories that they share with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.orphans import sweep
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


@pytest.fixture
def wide(repo: Repo) -> Repo:
    """Return a repository with several directories, and one that git ignores."""
    for path in ("Cargo.toml", "crates/one/a", "crates/one/deep/b", "crates/two/c", "docs/d", "odd [x]*/e"):
        repo.write(path, f"{path}\n")
    repo.write(".gitignore", "target/\n.ralph/worktrees/\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "wide")
    repo.write("target/built", "built\n")
    return repo


FILES = "find . -name .git -prune -o ! -type d -print | sort > $RALPH_PROJECT/../found"


def found(repo: Repo, *arguments: str) -> list[str]:
    """Return the files that an agent finds."""
    ended = run(repo.path, "-n", "1", *arguments, "--", "sh", "-c", FILES)
    assert ended.status == 0, ended.stderr
    return [line.removeprefix("./") for line in (repo.path.parent / "found").read_text().splitlines()]


TOP = [".gitignore", "Cargo.toml", "file.txt"]


def test_sparse_checks_out_what_was_asked_for(wide: Repo) -> None:
    """Whole directories, and always the files at the top; a file stands for its directory."""
    assert found(wide, "--sparse", "crates/one/", "--sparse", "docs/d") == sorted(
        [*TOP, "crates/one/a", "crates/one/deep/b", "docs/d"]
    )
    assert found(wide, "--sparse", "odd [x]*") == [*TOP, "odd [x]*/e"]
    assert found(wide, "--sparse", "Cargo.toml") == TOP


def test_an_empty_list_is_everything(wide: Repo) -> None:
    """As without the option."""
    (wide.path / ".ralph").mkdir(exist_ok=True)
    (wide.path / ".ralph" / "config.toml").write_text("sparse = []\nlink = []\n")
    assert len(found(wide)) == 8


def test_fresh_is_nearly_empty(wide: Repo) -> None:
    """From HEAD, with the files at the top alone."""
    assert found(wide, "--base", "fresh") == TOP


def test_a_file_that_is_not_checked_out_is_not_deleted(wide: Repo) -> None:
    """Neither for the agent's git, nor in what it commits, nor in what is saved."""
    agent = (
        "git status --porcelain > status; echo x > crates/one/new; git add -A; git commit -qm 1; echo y > y"
    )
    ended = run(wide.path, "-n", "1", "--sparse", "crates/one", "--", "sh", "-c", agent)
    branch = ended.report["branch"]
    assert wide.git("show", f"{branch}:status") == "?? status"
    assert wide.git("diff", "--name-status", "main", branch) == "A\tcrates/one/new\nA\tstatus"
    assert wide.git("diff", "--name-status", branch, f"{branch}-wip") == "A\ty"


def test_work_outside_of_what_was_asked_for_is_saved(wide: Repo) -> None:
    """A file that the agent makes in a directory that is not checked out, new or one of the commit's."""
    agent = "mkdir -p crates/two docs && echo new > crates/two/new && echo mine > docs/d"
    ended = run(wide.path, "-n", "1", "--sparse", "crates/one", "--", "sh", "-c", agent)
    wip = ended.report["saved"]
    assert wide.git("diff", "--name-status", "main", wip) == "A\tcrates/two/new\nM\tdocs/d"
    assert wide.git("show", f"{wip}:docs/d") == "mine"
    assert wide.worktrees() == []


def test_sparse_writes_nothing_that_is_shared(wide: Repo) -> None:
    """Git's own command would: at the same time as another, one of them fails."""
    before = (wide.path / ".git" / "config").read_bytes()
    found(wide, "--sparse", "docs")
    assert (wide.path / ".git" / "config").read_bytes() == before
    assert not (wide.path / ".git" / "info" / "sparse-checkout").exists()
    assert wide.git("ls-files", "-v").count("\nS ") == 0


@pytest.mark.parametrize("path", ["/etc", "..", "a/../../b", "", ".git", ".ralph/run", "no/such"])
def test_a_bad_sparse_path_is_a_usage_error(wide: Repo, path: str) -> None:
    """Before anything is made."""
    before = wide.fingerprint()
    ended = run(wide.path, f"--sparse={path}", "--", "true")
    if path:
        assert (ended.status, ended.directory) == (2, None), ended.stderr
        assert wide.fingerprint() == before
    else:
        assert ended.status == 0  # as an empty list


# Linked directories


def test_a_linked_directory_is_shared(wide: Repo) -> None:
    """What the agent writes there is in the project, and survives the worktree."""
    agent = "cat target/built && echo more > target/more && readlink target"
    ended = run(wide.path, "-n", "1", "--link", "target", "--", "sh", "-c", agent)
    assert ended.stdout.decode().splitlines() == ["built", "../../../target"]
    assert (wide.path / "target" / "more").read_text() == "more\n"
    assert (wide.path / "target" / "built").read_text() == "built\n"
    assert ended.report["saved"] is None
    assert wide.worktrees() == []


def test_the_link_is_never_committed(wide: Repo) -> None:
    """``target/`` in .gitignore does not match a symlink; nor what the user excludes is committed."""
    excluded = wide.path.parent / "excluded"
    excluded.write_text("*.mine")
    wide.git("config", "core.excludesFile", str(excluded))
    agent = "echo x > new; echo y > a.mine; git add -A && git commit -qm all; echo z > left"
    ended = run(wide.path, "-n", "1", "--link", "target", "--", "sh", "-c", agent)
    branch = ended.report["branch"]
    assert wide.git("diff", "--name-status", "main", branch) == "A\tnew"
    assert wide.git("diff", "--name-status", branch, f"{branch}-wip") == "A\tleft"


def test_a_link_alone_is_no_change(wide: Repo) -> None:
    """An agent that does nothing stalls, and leaves nothing."""
    ended = run(wide.path, "--max-stalls", "1", "--link", "target", "--drop-empty", "--", "true")
    assert ended.ending == ("max-stalls", 1, 0)
    assert wide.branches() == ["main"]


def test_a_link_in_a_deep_place(wide: Repo) -> None:
    """The directories above it are made; it leads to the same place from anywhere."""
    wide.write("web/node_modules/x", "x\n")
    (wide.path / ".git" / "info" / "exclude").write_text("node_modules\n")
    ended = run(wide.path, "-n", "1", "--link", "web/node_modules", "--", "cat", "web/node_modules/x")
    assert ended.stdout == b"x\n"


@pytest.mark.parametrize("path", ["no-such", "Cargo.toml", "/etc", "..", ".git", "out", "a/../../b"])
def test_a_bad_link_is_a_usage_error(wide: Repo, path: str) -> None:
    """Missing, a file, outside, git's own, a symlink that leads out: nothing is made."""
    (wide.path / "out").symlink_to("/etc")
    before = wide.fingerprint()
    ended = run(wide.path, "--link", path, "--", "true")
    assert (ended.status, ended.directory) == (2, None), ended.stderr
    assert wide.fingerprint() == before


def test_what_the_commit_has_is_not_linked_over(wide: Repo) -> None:
    """It is a mistake, which is an error before anything is made."""
    ended = run(wide.path, "-n", "1", "--link", "docs", "--", "true")
    assert ended.status == 2
    assert "'docs' cannot be linked: the commit has it" in ended.stderr
    assert (wide.branches(), wide.worktrees()) == (["main"], [])


def test_a_sweep_does_not_see_the_link_either(wide: Repo) -> None:
    """After a kill the work is saved, the link is not, and what it leads to stays."""
    agent = "echo x > new; sleep 600"
    with Session(wide.path, "--link", "target", "--sparse", "docs", "--", "sh", "-c", agent) as session:
        eventually(lambda: [*wide.path.glob(".ralph/worktrees/*/new")], "the agent's work")
        session.send(signal.SIGKILL)
        session.process.wait()
    assert sweep(wide).status == 0
    [wip] = [branch for branch in wide.branches() if branch.endswith("-wip")]
    assert wide.git("diff", "--name-status", "main", wip) == "A\tnew"
    assert (wide.path / "target" / "built").read_text() == "built\n"
    assert wide.worktrees() == []


# Jobs


def job(repo: Repo, **content: object) -> Path:
    """Write a job beside the repository."""
    path = repo.path.parent / "job.json"
    path.write_text(json.dumps(content))
    return path


def test_a_job_says_everything(wide: Repo) -> None:
    """Prompt, base, sparse paths and links, as documented."""
    path = job(
        wide,
        prompt="the prompt",
        isolation="worktree",
        worktree={
            "base_ref": "HEAD",
            "sparse_paths": ["crates/one/", "Cargo.toml"],
            "symlink_directories": ["target"],
        },
    )
    agent = "cat; ls; cat target/built"
    ended = run(wide.path, "-n", "1", "--job", str(path), "--", "sh", "-c", agent)
    assert ended.stdout.decode().split("\n")[0].removesuffix("Cargo.toml") == "the prompt"
    assert "crates" in ended.stdout.decode()
    assert "docs" not in ended.stdout.decode()
    assert "built" in ended.stdout.decode()


def test_a_job_on_standard_input(wide: Repo) -> None:
    """``-`` is standard input, for spawn as well."""
    for verb in ("run", "spawn"):
        subprocess.run(
            (PROGRAM, verb, "-n", "1", "--job", "-", "--", "sh", "-c", "cat"),
            cwd=wide.path,
            env=os.environ,
            input=json.dumps({"prompt": f"for {verb}"}).encode(),
            check=True,
            capture_output=True,
        )
    logs = wide.path.glob(".ralph/run/sessions/*/output.log")
    eventually(lambda: len([*wide.path.glob(".ralph/run/sessions/*/report.json")]) == 2, "both reports")
    assert sorted(log.read_text() for log in logs) == ["for run", "for spawn"]
    [kept] = wide.path.glob(".ralph/worktrees/*")
    assert command("rm", kept.name, cwd=wide.path).status == 0


def test_a_job_without_isolation(wide: Repo) -> None:
    """It works in the project itself."""
    path = job(wide, prompt="x", isolation="none")
    ended = run(wide.path, "-n", "1", "--job", str(path), "--", "pwd")
    assert ended.stdout.decode().strip() == str(wide.path)


def test_an_option_beats_the_job(wide: Repo) -> None:
    """An option on the command line."""
    path = job(wide, prompt="from the job", worktree={"sparse_paths": ["docs"]})
    ended = run(
        wide.path,
        "-n",
        "1",
        "--job",
        str(path),
        "-p",
        "typed",
        "--sparse",
        "crates/two",
        "--",
        "sh",
        "-c",
        "cat; ls",
    )
    assert ended.stdout == b"typedCargo.toml\ncrates\nfile.txt\n"


BAD = {
    "not JSON": ("{", "is not valid JSON"),
    "no object": ("[]", "an object is expected"),
    "an unknown key": ('{"prompt": "x", "promt": 1}', "promt: unknown key"),
    "an unknown key below": ('{"prompt": "x", "worktree": {"base": "x"}}', "worktree.base: unknown key"),
    "no prompt": ("{}", "prompt: a text is expected"),
    "a wrong type": (
        '{"prompt": "x", "worktree": {"sparse_paths": "docs"}}',
        "worktree.sparse_paths: a list",
    ),
    "a wrong member": (
        '{"prompt": "x", "worktree": {"sparse_paths": [1]}}',
        "worktree.sparse_paths[0]: a text",
    ),
    "another isolation": ('{"prompt": "x", "isolation": "vm"}', "isolation: 'vm' is none of worktree, none"),
    "a base that is not there": (
        '{"prompt": "x", "worktree": {"base_ref": "no"}}',
        "base 'no' names no commit",
    ),
}


@pytest.mark.parametrize(("content", "named"), BAD.values(), ids=BAD.keys())
def test_a_bad_job_names_the_key(wide: Repo, content: str, named: str) -> None:
    """And nothing is made."""
    path = wide.path.parent / "job.json"
    path.write_text(content)
    ended = run(wide.path, "--job", str(path), "--", "true")
    assert (ended.status, ended.directory) == (2, None), ended.stderr
    assert named in ended.stderr


def test_a_git_directory_beside_what_the_user_keeps(repo: Repo) -> None:
    """Only what is in the project is out of the question for our git's configuration."""
    above = repo.path.parent
    repo.git("init", "-q", "--separate-git-dir", above / "app.git")
    (above / "tmp").mkdir()
    env = {"XDG_STATE_HOME": os.fspath(above / "state"), "TMPDIR": os.fspath(above / "tmp")}
    ended = run(repo.path, "-n", "1", "--isolation", "require", "--", "true", env=env)
    assert (ended.status, ended.report["fallback"]) == (0, None), ended.stderr
    assert (above / "state" / "ralph-wrap" / "git").is_dir()
