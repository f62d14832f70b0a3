"""Histories made by one git process each, and what sessions would have recorded of them."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.state.report import SessionReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.repo import Repo


class Grown(NamedTuple):
    """One commit.

    Attributes:
        branch: that it is made on.
        parents: revisions, or numbers of earlier ones of the same call; none for a root.
        files: content by path, ``None`` deletes.

    """

    branch: str
    parents: Sequence[str | int]
    files: Mapping[str, str | bytes | None]


def grow_all(repo: Repo, commits: Sequence[Grown], message: str = "work") -> list[str]:
    """Make commits by one git process, and return their ids.

    Arguments:
        repo: where.
        commits: in order; each moves its branch.
        message: of all of them.

    """
    lines: list[bytes] = []
    for number, commit in enumerate(commits, 1):
        parents = [f":{one + 1}" if isinstance(one, int) else f"{one}^0" for one in commit.parents]
        lines.append(f"reset refs/heads/{commit.branch}\n".encode())
        lines.append(f"commit refs/heads/{commit.branch}\nmark :{number}\n".encode())
        lines.append(b"committer A. Tester <tester@example.invalid> 1767323045 +0000\n")
        lines.append(b"data %d\n%s\n" % (len(message.encode()), message.encode()))
        lines += [
            f"{'merge' if position else 'from'} {parent}\n".encode()
            for position, parent in enumerate(parents)
        ]
        for path, content in commit.files.items():
            name = path.encode("utf-8", "surrogateescape")
            data = content.encode() if isinstance(content, str) else content
            if data is None:
                lines.append(b"D %s\n" % name)
            else:
                lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name, len(data), data))
    lines += [b"get-mark :%d\n" % number for number in range(1, len(commits) + 1)]
    made = subprocess.run(
        ("git", "fast-import", "--quiet", "--force"),
        cwd=repo.path,
        input=b"".join(lines),
        stdout=subprocess.PIPE,
        check=True,
    )
    if any(commit.branch == "main" for commit in commits):
        repo.git("reset", "--quiet", "--hard")
    return made.stdout.decode().split()


def grow(
    repo: Repo,
    branch: str,
    start: str | None,
    *commits: Mapping[str, str | bytes | None],
    merging: Sequence[str] = (),
    message: str = "work",
) -> str:
    """Make commits on a branch, and return its tip.

    Arguments:
        repo: where.
        branch: its name; it is made, or moved.
        start: the revision that it starts from; ``None`` for a root of its own.
        commits: what each changes: content by path, ``None`` deletes.
        merging: more parents of the first one.
        message: of all of them.

    """
    first = [*([start] if start else []), *merging]
    rows = [Grown(branch, [number - 1] if number else first, files) for number, files in enumerate(commits)]
    return grow_all(repo, rows, message)[-1]


def record(
    repo: Repo,
    agent_id: str,
    base: str | None,
    *,
    branch: str | None = None,
    began: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    title: str = "",
    branch_created: bool = False,
    **fields: Any,
) -> str:
    """Write what a finished session has left below ``.ralph/run``, and return its id.

    Arguments:
        repo: the project.
        agent_id: of the session.
        base: what it recorded as such.
        branch: what it worked on, unless that is named by its id.
        began: when.
        title: what people call it.
        branch_created: whether it made its branch.
        fields: the other fields of its report.

    """
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    session = f"{began:%Y%m%dT%H%M%SZ}-{agent_id}"
    known = SessionRecord(
        id=agent_id,
        session=session,
        pid=1,
        start_time=1.0,
        boot_id="boot",
        pid_namespace="pid:[1]",
        host="host",
        branch=branch or f"ralph/{agent_id}",
        base=base,
        workspace=os.fspath(repo.path),
        agent="claude",
        iteration=3,
        state="finished",
        title=title,
        branch_created=branch_created,
    )
    directory = home.sessions / session
    directory.mkdir()
    (directory / "record.json").write_bytes(known.to_json())
    made = SessionReport.of(known, ended_by="promise", exit_status=0, commits=1, iterations=3)
    fields = {"ended": "2026-01-02T04:05:06+00:00", **fields}
    (directory / "report.json").write_bytes(made._replace(**fields).to_json())
    return session
