"""What the sessions of an index have printed, as a commit: the logs of pods vanish with them."""

from __future__ import annotations

import json

from ralph_wrap.errors import NotFoundError
from ralph_wrap.git import Git, commit_tree, decode_lines, run_git, store_blob
from ralph_wrap.git.objects import make_tree
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.fleet.child import LARGEST_OUTPUT
from ralph_wrap.interfaces.fleet.refs import output_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.state.report import SessionReport

LOG, REPORT = "output.log", "report.json"
"""The names of the files in the commit."""

_MOST = 100  # workers of an index whose output is printed: the last ones


class SessionOutput:
    """The output of a worker so far.

    Attributes:
        report: of the last session; ``None`` if it wrote none.
        has_news: there is output that the remote does not have.

    """

    def __init__(self) -> None:
        self.report: SessionReport | None = None
        self.has_news = False
        self._content = bytearray()

    def keep(self, chunk: bytes) -> None:
        """Add what a session has printed; of a lot of output the end stays."""
        self.has_news = True
        self._content += chunk
        if len(self._content) > 2 * LARGEST_OUTPUT:
            del self._content[:-LARGEST_OUTPUT]

    def commit(self, git: Git, before: str | None, index: int) -> str:
        """Store it as a commit, and return the commit's id.

        Arguments:
            before: the commit that the remote has.
            index: for the message.

        """
        files = {LOG: store_blob(git, bytes(self._content[-LARGEST_OUTPUT:]))}
        if self.report is not None:
            content = json.dumps(self.report.to_dict(), indent=1).encode() + b"\n"
            files[REPORT] = store_blob(git, content)
        tree = make_tree(git, files)
        return commit_tree(git, tree, [before] if before else [], f"ralph-wrap: output of index {index}\n")


def read_output(remote: FleetRemote, run: str, index: int) -> bytes:
    """Return what the workers of an index have printed, the oldest first.

    Raises:
        NotFoundError: no worker has pushed output.
        UnreachableError: the remote does not answer.

    """
    ref = output_ref(run, index)
    found = remote.listed(ref).get(ref)
    if found is None:
        raise NotFoundError(
            f"no worker of index {index} has pushed output yet", f"ralph-wrap fleet logs -f {run} {index}"
        )
    remote.fetch([ref])
    arguments = ("--first-parent", "--reverse", f"--max-count={_MOST}", found, "--")
    names = [f"{oid}:{LOG}" for oid in decode_lines(run_git(remote.git, "rev-list", *arguments).stdout)]
    contents = read_blobs(remote.git, names)
    return b"".join(contents[name] for name in names if name in contents)
