"""Read objects, and compare each with the hash that is its id.

What git says of a damaged object, and with which exit status it ends, differs between its versions. So one
``git cat-file --batch`` prints the objects, and this module decides: an object is whole if all of it came, it
has its hash, and git said nothing meanwhile.

Git works here in a directory of its own, with the objects of the repository and an empty configuration. There
it has nothing else to say, no remote to fetch a missing object from, and no program to run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import Git, await_answer, decode, run_git, start_dialogue
from ralph_wrap.git.scratch import private_directory
from ralph_wrap.system.dialogue import Dialogue

_NAME = "ralph-wrap-objects-"
_NO_CONFIG = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
_SPEAKS = ("GIT_TRACE", "GIT_CONFIG")  # prefixes of variables that make git write to its standard error
_SHA1 = 40  # hexadecimal digits
_EXTENSION = "[extensions]\n\tobjectFormat = sha256\n"
_OF_AN_OBJECT = 3  # words: object id, type, size
_LARGEST_KEPT = 1 << 28  # bytes of a commit, tree or tag; git itself has it in memory
_MOST_ASKED = 4096  # bytes of questions at once: see LONGEST_QUESTION of system/dialogue.py


class Answer(NamedTuple):
    """What git has answered about an object.

    Attributes:
        kind: ``blob``, ``tree``, ``commit`` or ``tag``; empty if there is a problem.
        content: empty for a blob, and if there is a problem.
        problem: what is wrong with it, with the words of git; empty if it is whole.
        is_missing: git finds nothing under this id. It is the problem.

    """

    kind: str
    content: bytes = b""
    problem: str = ""
    is_missing: bool = False


class ObjectStore(NamedTuple):
    """Where the objects of a repository are.

    Attributes:
        objects: the object directory.
        shallow: the file with the commits whose parents are cut off; it may be missing.

    """

    objects: Path
    shallow: Path


def store_of(git: Git) -> ObjectStore:
    """Return where the objects of a repository are.

    Raises:
        GitError: git finds no repository.

    """
    if git.common_dir is not None:
        shallow = git.common_dir / "shallow"
    else:
        found = decode(run_git(git, "rev-parse", "--git-path", "shallow").stdout).removesuffix("\n")
        shallow = git.cwd / found
    # In a safe copy of the common directory, both are links into the repository, and its file may be missing.
    objects = git.objects or Path(os.path.realpath(shallow.with_name("objects")))
    return ObjectStore(objects, Path(os.path.realpath(shallow)))


@contextlib.contextmanager
def git_without_configuration(git: Git, objects: Path, *, is_sha1: bool) -> Iterator[Git]:
    """Make a git directory with an empty configuration, yield git in it, and remove it at the end.

    Arguments:
        git: its environment, its lock and its token are kept.
        objects: an object directory.

    Raises:
        OSError: no private directory can be made.

    """
    with contextlib.ExitStack() as stack:
        directory = private_directory(stack, git.env, _project_of(git, objects.parent), _NAME)
        for name in ("objects", "refs"):
            (directory / name).mkdir()
        (directory / "HEAD").write_text("ref: refs/heads/none\n")
        core = f"[core]\n\trepositoryFormatVersion = {int(not is_sha1)}\n\tbare = true\n"
        (directory / "config").write_text(core if is_sha1 else core + _EXTENSION)
        kept = {name: value for name, value in git.env.items() if not name.startswith(_SPEAKS)}
        # Git before 2.32 does not know GIT_CONFIG_GLOBAL.
        homes = {"HOME": os.fspath(directory), "XDG_CONFIG_HOME": os.fspath(directory)}
        yield Git(
            directory,
            {**kept, **homes, **_NO_CONFIG},
            git_dir=directory,
            objects=objects,
            lock=git.lock,
            cancel=git.cancel,
        )


def _project_of(git: Git, common_dir: Path) -> list[Path]:
    main_checkout = [common_dir.parent] if common_dir.name == ".git" else []
    return [common_dir, *main_checkout, *([] if git.work_tree is None else [git.work_tree])]


def read_objects(git: Git, oids: Sequence[str]) -> dict[str, Answer]:
    """Return objects of a repository by id; of a file it is only said whether it is whole.

    Raises:
        GitError: git does not work here.
        OSError: there is no room for a temporary directory.

    """
    if not oids:
        return {}
    is_sha1 = len(oids[0]) == _SHA1
    with (
        git_without_configuration(git, store_of(git).objects, is_sha1=is_sha1) as apart,
        ObjectReader(apart) as reader,
    ):
        return dict(reader.read_all(oids))


def is_gone(git: Git, oid: str, witnesses: Sequence[str]) -> bool:
    """Return whether it is proven that a repository has no object with an id.

    A git that is started for this alone has to say plainly that it is missing, without a word more, and to
    read other commits of the same repository. Where a directory of objects is not there for a while, or a
    pack is damaged, git says missing, too.

    Arguments:
        git: git in the repository.
        oid: the object id.
        witnesses: commits that have to be readable; without any, nothing is proven.

    Raises:
        GitError: git does not work here.
        OSError: there is no room for a temporary directory.

    """
    if not witnesses:
        return False
    with (
        git_without_configuration(git, store_of(git).objects, is_sha1=len(oid) == _SHA1) as apart,
        ObjectReader(apart) as reader,
    ):
        answers = dict(reader.read_all([*witnesses, oid]))
        is_readable = all(answers[witness].kind == "commit" for witness in witnesses)
        return is_readable and answers[oid].is_missing and reader.began_silently


class ObjectReader:
    """Reads objects by their ids.

    Arguments:
        git: see :func:`git_without_configuration`.

    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._dialogue: Dialogue | None = None
        self._received = b""
        self._said = 0  # bytes that git wrote to its standard error before the first object

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, oid: str) -> Answer:
        """Return an object."""
        return next(self.read_all([oid]))[1]

    def read_all(self, oids: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        """Yield objects, each with its id, in the same order.

        Raises:
            GitError: git does not start, or does not answer in time.
            InterruptedError: a signal came, and git has a token that counts them.

        """
        most = _MOST_ASKED // (len(oids[0]) + 1) if oids else 1
        for begin in range(0, len(oids), most):
            part = oids[begin : begin + most]
            try:
                answers = self._ask(part)
            except EOFError:
                answers = []
            if not answers or self._words():
                # Beside a `git repack`, git may have lost a pack. One that is started now finds the new one.
                answers = [self._read_alone(oid) for oid in part]
            yield from zip(part, answers, strict=True)

    @property
    def began_silently(self) -> bool:
        """The last git that was started said nothing before the first object."""
        return not self._said

    def _read_alone(self, oid: str) -> Answer:
        """Return an object as a git reads it that has read nothing else before."""
        self._end()
        try:
            answer = self._ask([oid])[0]
        except EOFError as error:
            assert self._dialogue is not None
            completed = self._dialogue.wait()
            words = self._words() or str(error) or f"cat-file ended with exit status {completed.status}"
            answer = Answer("", problem=f"is damaged; git says: {words}")
        else:
            if words := self._words():
                problem = answer.problem if answer.problem and not answer.is_missing else "is damaged"
                answer = Answer("", problem=f"{problem}; git says: {words}")
        if answer.problem:
            self._end()
        return answer

    def _ask(self, oids: Sequence[str]) -> list[Answer]:
        """Return the answers to a few questions.

        Raises:
            EOFError: git ended.

        """
        dialogue = self._dialogue or self._start()
        try:
            dialogue.ask("".join(f"{oid}\n" for oid in oids).encode())
        except BrokenPipeError:
            raise EOFError from None
        return [self._read_answer(oid) for oid in oids]

    def _start(self) -> Dialogue:
        self._dialogue = dialogue = start_dialogue(self._git, "cat-file", "--batch")
        self._received = b""
        # A program before git on the PATH, or the loader of programs, may write to the standard error, too.
        # What is there before the first object says nothing about objects.
        try:
            dialogue.ask(b"\n")
            self._read_line()
        except (BrokenPipeError, EOFError):
            completed = dialogue.wait()
            raise GitError("cat-file", completed.status, decode(completed.stderr)) from None
        self._said = len(dialogue.errors())
        return dialogue

    def _end(self) -> None:
        if self._dialogue is not None:
            with self._dialogue:
                self._dialogue = None

    def _words(self) -> str:
        """Return what git has said about objects, in one line."""
        assert self._dialogue is not None
        said = self._dialogue.errors()[self._said :]
        return "; ".join(line.strip() for line in decode(said).splitlines() if line.strip())

    def _read_answer(self, oid: str) -> Answer:
        header = self._read_line()
        if header == f"{oid} missing".encode():
            return Answer("", problem="is missing", is_missing=True)
        words = header.split(b" ")
        if len(words) != _OF_AN_OBJECT or words[0] != oid.encode() or not words[2].isdigit():
            raise self._not_understood(header)
        kind, size = words[1].decode("ascii", "replace"), int(words[2])
        hashed = hashlib.sha1 if len(oid) == _SHA1 else hashlib.sha256
        digest = hashed(b"%s %d\0" % (words[1], size), usedforsecurity=False)
        is_kept = kind != "blob" and size <= _LARGEST_KEPT
        content = bytearray()
        for part in self._read_parts(size):
            digest.update(part)
            if is_kept:
                content += part
        if rest := self._read_line():
            raise self._not_understood(rest)
        if digest.hexdigest() != oid:
            return Answer("", problem="is damaged: its content has another hash")
        if kind != "blob" and not is_kept:
            return Answer("", problem=f"is too large: a {kind} of {size} bytes")
        return Answer(kind, bytes(content))

    def _not_understood(self, answer: bytes) -> EOFError:
        """Read no other answer after one that this module does not understand."""
        assert self._dialogue is not None
        self._dialogue.end()
        return EOFError(decode(answer[:200]))

    def _read_line(self) -> bytes:
        """Return the next line, without its newline."""
        while (end := self._received.find(b"\n")) < 0:
            self._received += self._receive()
        line, self._received = self._received[:end], self._received[end + 1 :]
        return line

    def _read_parts(self, size: int) -> Iterator[bytes]:
        while size:
            part = self._received or self._receive()
            yield part[:size]
            self._received = part[size:]
            size -= min(size, len(part))

    def _receive(self) -> bytes:
        assert self._dialogue is not None
        await_answer(self._dialogue, "cat-file")
        if received := self._dialogue.receive():
            return received
        raise EOFError
