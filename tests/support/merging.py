"""Branches that are to land, and what could move when they do."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from ralph_wrap import branches
from ralph_wrap.commands import merge
from ralph_wrap.state import project
from tests.support.directory_listing import listing
from tests.support.repo import make_repo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.commands.merge import LandingResult
    from tests.support.repo import Repo

CONTENT = {"one/two/three": "deep\n", "file.txt": "one\n", "gone": "gone\n", "run.sh": "#!/bin/sh\n"}
AAAA = {"new/a": "A\n", "file.txt": "one\nA\n"}


def project_with_files(path: Path) -> Repo:
    """Return a repository with a few files on main."""
    made = make_repo(path, empty=True)
    for name, content in CONTENT.items():
        made.write(name, content)
    made.commit("first")
    return made


def change_every_kind(repo: Repo) -> None:
    """Change the files of such a repository in all ways, to names in any script."""
    (repo.path / "run.sh").chmod(0o755)
    (repo.path / "link").symlink_to("file.txt")
    (repo.path / "gone").unlink()
    repo.write("gone/inside", "a directory now\n")
    repo.git("rm", "-q", "-r", "one")
    repo.write("one", "a file now\n")
    repo.write('größe/日本 語\n"quoted"\t.txt', "any\n")
    repo.write(os.fsdecode(b"not-\xff-utf8"), "any\n")


def branch(
    repo: Repo, name: str, files: Mapping[str, str | None], *, base: str = "main", message: str = ""
) -> str:
    """Make a commit on a branch, which is made where it is not there; return its id.

    Arguments:
        repo: where.
        name: of the branch, below ``ralph/``.
        files: path and content; ``None`` deletes.
        base: what a new branch starts from.
        message: of the commit.

    """
    ref = f"refs/heads/ralph/{name}"
    start = ref if f"ralph/{name}" in repo.branches() else f"refs/heads/{base}"
    person = b"%s <tester@example.invalid> 1767323045 +0000\n"
    rows = [
        b"commit %s\n" % ref.encode(),
        b"author " + person % os.environ["GIT_AUTHOR_NAME"].encode(),
        b"committer " + person % os.environ["GIT_COMMITTER_NAME"].encode(),
        _data(message or f"work on {name}"),
        b"from %s^0\n" % start.encode(),
    ]
    for path, content in files.items():
        if content is None:
            rows.append(b"D %s\n" % path.encode())
        else:
            rows += [b"M 100644 inline %s\n" % path.encode(), _data(content)]
    subprocess.run(
        ("git", "fast-import", "--quiet", "--force"), cwd=repo.path, input=b"".join(rows), check=True
    )
    return repo.git("rev-parse", ref)


def _data(content: str) -> bytes:
    return b"data %d\n%s\n" % (len(content.encode()), content.encode())


def replaced(repo: Repo, path: str, files: Mapping[str, tuple[str, str]], branch: str) -> str:
    """Make a branch at a commit on HEAD that has something else in place of a path; return the commit.

    Arguments:
        repo: where; its checkout and its index stay as they are.
        path: what goes.
        files: mode and content of what comes, by path.
        branch: its name.

    """
    index = {**os.environ, "GIT_INDEX_FILE": os.fspath(repo.path / ".git" / "scratch")}

    def git(*arguments: str, stdin: str = "") -> str:
        ended = subprocess.run(
            ("git", *arguments), cwd=repo.path, env=index, input=stdin.encode(), stdout=-1, check=True
        )
        return ended.stdout.decode().strip()

    git("read-tree", "HEAD")
    git("update-index", "--force-remove", path)
    for name, (mode, content) in files.items():
        blob = git("hash-object", "-w", "--stdin", stdin=content)
        git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{name}")
    commit = git("commit-tree", "-p", "HEAD", "-m", "replaced", git("write-tree"))
    (repo.path / ".git" / "scratch").unlink()
    repo.git("branch", branch, commit)
    return commit


def land(repo: Repo, *names: str, into: str | None = None, **options: Any) -> list[LandingResult]:
    """Land branches, as the command line does."""
    environ = {**os.environ, **options.pop("env", {})}
    found_project = project.find_project(repo.path, environ)
    known = branches.read(found_project)
    target = merge.target_of(found_project, into, None)
    wanted = [branches.named(known, name) for name in names]
    return merge.land(found_project, wanted, target, main="main", **options)


def files_of(top: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of all files of a checkout, without those of git and of ours."""
    found: dict[str, tuple[int, bytes]] = {}
    for entry in top.iterdir():
        if entry.name in {".git", ".ralph"}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            found |= {f"{entry.name}/{name}": there for name, there in listing(entry).items()}
        else:
            content = os.fsencode(entry.readlink()) if entry.is_symlink() else entry.read_bytes()
            found[entry.name] = entry.lstat().st_mode, content
    return found


def state(repo: Repo) -> dict[str, object]:
    """Return all that a merge could move: files, index, HEAD, refs; not what is ours in ``.ralph/run``."""
    return {
        "files": files_of(repo.path),
        "refs": repo.git("for-each-ref"),
        "worktrees": repo.git("worktree", "list", "--porcelain"),
        "locks": sorted(map(str, repo.path.glob(".git/**/*.lock"))),
        **repo.fingerprint(),
    }


def left(repo: Repo) -> list[str]:
    """Return what is there of temporary worktrees."""
    found = (*repo.path.glob(".git/worktrees/*"), *repo.path.glob(".ralph/run/landing/*"))
    return [path.name for path in (*found, *repo.path.glob(".ralph/run/landing.json"))]


def is_clean(repo: Repo, tip: str) -> bool:
    """Return whether the main checkout is at a commit, and as it is."""
    return repo.head == tip and repo.git("status", "--porcelain", "--ignored=no", "--", ":!.ralph") == ""
