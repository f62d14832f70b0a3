"""An agent that works with a git of Python; its one argument is the name of the package."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Git(NamedTuple):
    """What the agent needs of a git, each with paths or a message, and the subject of HEAD."""

    add: Callable[[str], object]
    remove: Callable[[str], object]
    commit: Callable[[str], object]
    subject: Callable[[], str]


def by_pygit2() -> Git:
    """Return libgit2."""
    pygit2: Any = import_module("pygit2")
    repo = pygit2.Repository(".")

    def add(path: str) -> None:
        repo.index.add(path)
        repo.index.write()

    def remove(path: str) -> None:
        repo.index.remove(path)
        repo.index.write()
        Path(path).unlink(missing_ok=True)

    def commit(message: str) -> None:
        who = pygit2.Signature("An Agent", "agent@example.invalid")
        repo.create_commit("HEAD", who, who, message, repo.index.write_tree(), [repo.head.target])

    def subject() -> str:
        return str(repo.head.peel(pygit2.Commit).message).strip()

    return Git(add, remove, commit, subject)


def by_dulwich() -> Git:
    """Return dulwich."""
    porcelain: Any = import_module("dulwich.porcelain")
    repo: Any = import_module("dulwich.repo").Repo(".")
    who = b"An Agent <agent@example.invalid>"

    def commit(message: str) -> object:
        return porcelain.commit(repo, message=message, author=who, committer=who)

    def subject() -> str:
        return str(repo[repo.head()].message.decode()).strip()

    def remove(path: str) -> None:
        if Path(path).exists():
            porcelain.remove(repo, paths=[path])
        else:
            index = repo.open_index()
            del index[path.encode()]
            index.write()

    def add(path: str) -> object:
        return porcelain.add(repo, paths=[path])

    return Git(
        add,
        remove,
        commit,
        subject,
    )


def by_gitpython() -> Git:
    """Return GitPython, with its own index where it has one."""
    repo: Any = import_module("git").Repo(".")

    def add(path: str) -> None:
        repo.index.add([path])

    def remove(path: str) -> None:
        repo.index.remove([path], working_tree=Path(path).exists())

    return Git(
        add,
        remove,
        repo.index.commit,
        lambda: str(repo.head.commit.message).strip(),
    )


git = {"pygit2": by_pygit2, "dulwich": by_dulwich, "gitpython": by_gitpython}[sys.argv[1]]()
if not Path("committed").exists():
    Path("committed").write_text("a committed line\n")
    git.add("committed")
    git.commit("the agent's")
    Path("staged").write_text("a staged line\n")
    git.add("staged")
    git.remove("gone")
    Path("moved").rename("renamed")
    git.remove("moved")
    git.add("renamed")
    Path("both").write_text("staged before\n")
    git.add("both")
else:
    Path("resumed").write_text(f"{git.subject()}\n")
    git.add("resumed")
    git.commit("again")
