"""What an agent can write into a repository, each with the title by which an audit names it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

EVIL = "sh -c 'touch /tmp/evil'"
"""The program of the agent."""


class Tampering(NamedTuple):
    """A change, and the title of its finding."""

    make: Callable[[Repo], object]
    title: str


def _key(key: str, value: str = EVIL) -> Tampering:
    return Tampering(lambda repo: repo.git("config", key, value), f".git/config: {key}")


def _file(path: str, content: str = "evil\n", *, executable: bool = False) -> Tampering:
    return Tampering(lambda repo: repo.write(path, content, executable=executable), path)


def _instead(path: str, make: Callable[[Path], object]) -> Tampering:
    """Return a tampering that puts something in the place of a file or directory, which is kept aside."""

    def replace(repo: Repo) -> None:
        target = repo.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(repo.path.parent / "aside")
        make(target)

    return Tampering(replace, path)


def _symlink(path: Path) -> None:
    path.symlink_to(path.parents[1] / "elsewhere")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's address has at most 107 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(before)


def _worktree_key(repo: Repo) -> None:
    repo.write(".git/config.worktree", "[core]\n\tpager = evil\n")


def _worktree(repo: Repo) -> Path:
    """Add the user's own worktree, and return its registration."""
    repo.git("worktree", "add", "-q", "../linked", "-b", "linked")
    return repo.path / ".git/worktrees/linked"


def _common_dir_of_worktree(repo: Repo) -> None:
    (_worktree(repo) / "commondir").write_text("/tmp/evil.git\n")


def _own_key_of_worktree(repo: Repo) -> None:
    (_worktree(repo) / "config.worktree").write_text("[core]\n\tsshCommand = evil\n")


def _repository_in_registration(repo: Repo) -> None:
    (_worktree(repo) / "config").write_text("[core]\n\tpager = evil\n")


def _git_file_of_worktree(repo: Repo) -> None:
    _worktree(repo)
    (repo.path.parent / "linked/.git").write_text("gitdir: /tmp/evil.git\n")


def _git_directory_of_worktree(repo: Repo) -> None:
    _worktree(repo)
    git = repo.path.parent / "linked/.git"
    git.unlink()
    git.mkdir()


def _rebase_in_worktree(repo: Repo) -> None:
    todo = _worktree(repo) / "rebase-merge/git-rebase-todo"
    todo.parent.mkdir()
    todo.write_text("exec evil\n")


def submodule(repo: Repo) -> Path:
    """Make the repository of a submodule as git does, and return its directory."""
    (repo.path / ".git/modules/libs").mkdir(parents=True)
    repo.git("init", "-q", "--separate-git-dir", ".git/modules/libs/part", "libs/part")
    repo.git("-C", "libs/part", "config", "core.worktree", "../../../../libs/part")
    return repo.path / ".git/modules/libs/part"


def _key_of_submodule(repo: Repo) -> None:
    repo.git("config", "--file", submodule(repo) / "config", "core.fsmonitor", EVIL)


def _hook_of_submodule(repo: Repo) -> None:
    (submodule(repo) / "hooks").mkdir(exist_ok=True)
    repo.write(".git/modules/libs/part/hooks/post-checkout", executable=True)


def _work_tree_of_submodule(repo: Repo) -> None:
    repo.git("config", "--file", submodule(repo) / "config", "core.worktree", "/tmp")


def _git_file_of_submodule(repo: Repo) -> None:
    submodule(repo)
    repo.write("libs/part/.git", "gitdir: /tmp/evil.git\n")


def _nested_submodule(repo: Repo) -> None:
    submodule(repo)
    repo.write(".git/modules/libs/part/modules/deep/config", "[core]\n\tpager = evil\n")


def _replaced(repo: Repo) -> None:
    repo.git("replace", repo.head, repo.git("commit-tree", "-m", "other", "HEAD^{tree}"))


def _replaced_and_packed(repo: Repo) -> None:
    _replaced(repo)
    repo.git("pack-refs", "--all")


def _project_hooks(repo: Repo) -> None:
    """Lead the user's own configuration to hooks in each project, and add one."""
    repo.git("config", "--global", "core.hooksPath", ".githooks")
    repo.write(".githooks/post-checkout", executable=True)


_HEAD = "5f2f9d4b9c8e7a6d5c4b3a291807f6e5d4c3b2a1"  # any object id

TAMPERINGS = {
    "pager": _key("core.pager"),
    "ssh command": _key("core.sshcommand"),
    "file system monitor": _key("core.fsmonitor"),
    "hooks path": _key("core.hookspath", "/tmp/hooks"),
    "editor": _key("core.editor"),
    "attributes file": _key("core.attributesfile", "/tmp/attributes"),
    "work tree": _key("core.worktree", "/tmp"),
    "alias": _key("alias.st", "!evil"),
    "smudge filter": _key("filter.evil.smudge"),
    "clean filter": _key("filter.evil.clean"),
    "filter process": _key("filter.evil.process"),
    "LFS that is another": _key("filter.lfs.smudge", "git-lfs smudge -- %f; evil"),
    "merge driver": _key("merge.evil.driver"),
    "external diff": _key("diff.external"),
    "text conversion": _key("diff.evil.textconv"),
    "signing program": _key("gpg.program"),
    "credential helper": _key("credential.helper", "!evil"),
    "upload pack": _key("remote.origin.uploadpack"),
    "receive pack": _key("remote.origin.receivepack"),
    "address that runs": _key("remote.origin.url", "ext::evil"),
    "push address": _key("remote.origin.pushurl", "https://evil.example"),
    "push of a branch": _key("branch.main.pushremote", "https://evil.example/x.git"),
    "partial clone": _key("extensions.partialclone", "origin"),
    "replaced address": Tampering(
        lambda repo: repo.git("config", "url.https://evil.example/.insteadOf", "https://github.com/"),
        ".git/config: url.https://evil.example/.insteadof",
    ),
    "include": _key("include.path", "/tmp/more"),
    "conditional include": Tampering(
        lambda repo: repo.git("config", "includeIf.gitdir:/.path", "/tmp/more"),
        ".git/config: includeif.gitdir:/.path",
    ),
    "submodule update": _key("submodule.x.update", "!evil"),
    "key of the worktree": Tampering(_worktree_key, ".git/config.worktree: core.pager"),
    "unreadable configuration": _file(".git/config", "[core\n"),
    "huge configuration": _file(".git/config", "#" * (1 << 20) + "\n"),
    "hook": _file(".git/hooks/post-checkout", executable=True),
    "hook that looks like LFS": _file(
        ".git/hooks/pre-push", '#!/bin/sh\ngit lfs pre-push "$@"\nevil\n', executable=True
    ),
    "hooks of the project": Tampering(_project_hooks, ".githooks/post-checkout"),
    "attributes": _file(".git/info/attributes", "* filter=evil\n"),
    "grafts": _file(".git/info/grafts", f"{_HEAD}\n"),
    "shallow": _file(".git/shallow", f"{_HEAD}\n"),
    "common directory": _file(".git/commondir", "/tmp/evil.git\n"),
    "alternates": _file(".git/objects/info/alternates", "/tmp/objects\n"),
    "remote in a file": _file(".git/remotes/origin", "URL: ext::evil\n"),
    "remote in an older file": _file(".git/branches/origin", "ext::evil\n"),
    "rebase that runs": _file(".git/rebase-merge/git-rebase-todo", "pick 1 x\nexec evil\n"),
    "replaced object": Tampering(_replaced, "refs/replace/"),
    "replaced object, packed": Tampering(_replaced_and_packed, "refs/replace/"),
    "common directory of a worktree": Tampering(_common_dir_of_worktree, ".git/worktrees/linked/commondir"),
    "key of another worktree": Tampering(
        _own_key_of_worktree, ".git/worktrees/linked/config.worktree: core.sshcommand"
    ),
    "repository in a registration": Tampering(_repository_in_registration, ".git/worktrees/linked/config"),
    ".git file of a worktree": Tampering(_git_file_of_worktree, "linked/.git"),
    ".git directory in a worktree": Tampering(_git_directory_of_worktree, "linked/.git"),
    "rebase in a worktree": Tampering(
        _rebase_in_worktree, ".git/worktrees/linked/rebase-merge/git-rebase-todo"
    ),
    "key of a submodule": Tampering(_key_of_submodule, ".git/modules/libs/part/config: core.fsmonitor"),
    "hook of a submodule": Tampering(_hook_of_submodule, ".git/modules/libs/part/hooks/post-checkout"),
    "work tree of a submodule": Tampering(
        _work_tree_of_submodule, ".git/modules/libs/part/config: core.worktree"
    ),
    ".git file of a submodule": Tampering(_git_file_of_submodule, "libs/part/.git"),
    "submodule of a submodule": Tampering(
        _nested_submodule, ".git/modules/libs/part/modules/deep/config: core.pager"
    ),
    "FIFO as configuration": _instead(".git/config", os.mkfifo),
    "FIFO as packed refs": _instead(".git/packed-refs", os.mkfifo),
    "FIFO as alternates": _instead(".git/objects/info/alternates", os.mkfifo),
    "FIFO as index": _instead(".git/index", os.mkfifo),
    "FIFO as HEAD of a branch": _instead(".git/refs/heads/x", os.mkfifo),
    "socket as attributes": _instead(".git/info/attributes", _socket),
    "directory as configuration": _instead(".git/config", Path.mkdir),
    "symlink as configuration": _instead(".git/config", _symlink),
    "symlink as hooks": _instead(".git/hooks", _symlink),
    "symlink as objects": _instead(".git/objects/pack", _symlink),
    "symlink as a submodule": _instead(".git/modules/part", _symlink),
    "symlink as a branch": _instead(".git/refs/heads/x", _symlink),
}
