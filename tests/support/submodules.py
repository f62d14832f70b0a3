"""A repository with submodules, one of them in another one, and worktrees in which they are initialised."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.repo import GitConfiguration, Repo, git_configuration, make_repo, refresh_index
from tests.support.trees import ID, Tree, make_tree

ALLOWED = ("-c", "protocol.file.allow=always")
SUB = "vendor/x"
NESTED = f"{SUB}/deep"
PREFIX = f"refs/ralph/snapshots/{ID}/"


@dataclass(frozen=True)
class Project:
    """A project with the submodule ``vendor/x``, which has the submodule ``deep``.

    Attributes:
        repo: the project.
        upstream: where ``vendor/x`` comes from.

    """

    repo: Repo
    upstream: Repo

    @property
    def store(self) -> Repo:
        """The main checkout's repository of ``vendor/x``."""
        return Repo(self.repo.path / ".git" / "modules" / SUB)

    def tree(self, *, initialised: bool = True) -> Tree:
        """Make a worktree, and initialise all submodules as an agent would."""
        tree = make_tree(self.repo)
        if initialised:
            tree.inside.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
        return tree


def make_project(directory: Path, *, checked_out: bool = True) -> Project:
    """Make a project in a new directory, as a copy of one that git has made before in the same configuration.

    The URLs of its submodules lead through a symbolic link, which always leads to the newest copy.

    Arguments:
        directory: for it and what its submodules come from.
        checked_out: the main checkout has its submodules.

    """
    template = _template(git_configuration(), checked_out)
    shutil.copytree(template / "world", directory, symlinks=True, dirs_exist_ok=True)
    for worktree, index in _INDEXES.items():
        if (directory / index).exists():
            refresh_index(directory / index, directory / worktree)
    _lead(template / "newest", directory)
    return Project(Repo(directory / "project"), Repo(template / "newest" / "upstream"))


_INDEXES = {
    "deep": "deep/.git/index",
    "upstream": "upstream/.git/index",
    "upstream/deep": "upstream/.git/modules/deep/index",
    "project": "project/.git/index",
    f"project/{SUB}": f"project/.git/modules/{SUB}/index",
    f"project/{NESTED}": f"project/.git/modules/{SUB}/modules/deep/index",
}
"""Of each worktree, below the directory of a project."""


@cache
def _template(_configuration: GitConfiguration, checked_out: bool) -> Path:
    """Return a directory with a project in ``world``, and the link ``newest``."""
    template = Path(tempfile.mkdtemp(prefix="ralph-wrap-template-"))
    atexit.register(shutil.rmtree, template)
    template.chmod(0o755)  # another user follows the link, too
    (template / "world").mkdir()
    _lead(template / "newest", template / "world")
    _make(template / "newest", checked_out=checked_out)
    for sample in template.glob("world/**/hooks/*.sample"):
        sample.unlink()
    return template


def _lead(link: Path, directory: Path) -> None:
    """Have a symbolic link lead to a directory."""
    link.unlink(missing_ok=True)
    link.symlink_to(directory.absolute())


def _make(directory: Path, *, checked_out: bool) -> None:
    deep = make_repo(directory / "deep")
    deep.write("deep.txt", "deep\n")
    deep.commit("deep")
    upstream = make_repo(directory / "upstream")
    upstream.write(".gitignore", "*.ignored\n")
    upstream.git(*ALLOWED, "submodule", "--quiet", "add", deep.path, "deep")
    upstream.commit("with deep")
    repo = make_repo(directory / "project")
    repo.write(".gitignore", ".ralph/\n")
    repo.git(*ALLOWED, "submodule", "--quiet", "add", upstream.path, SUB)
    repo.commit("with submodule")
    if checked_out:
        repo.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
    else:
        repo.git("submodule", "--quiet", "deinit", "--force", "--all")
        shutil.rmtree(repo.path / ".git" / "modules")


def held(repo: Repo) -> dict[str, str]:
    """Return the snapshots that a repository holds: name without its prefix, and commit."""
    rows = repo.git("for-each-ref", "--format=%(refname) %(objectname)", PREFIX).splitlines()
    return {name.removeprefix(PREFIX): oid for name, oid in (row.split(" ") for row in rows)}


def inside(tree: Tree, path: str = SUB) -> Repo:
    """Return a submodule of a worktree."""
    return Repo(tree.path / path)
