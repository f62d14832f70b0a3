"""What must hold on the remote after a run, whatever happened to its pods and its nodes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from ralph_wrap.interfaces.fleet.refs import output_ref
from tests.kubernetes.run import LIMIT
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kubernetes.remote import Update
    from tests.kubernetes.run import Run

Line = tuple[int, str]
"""The number of a line, and the address of the pod that has written it."""


def require_everything(run: Run, *, graceful: bool) -> None:
    """Fail unless each index is done once, no branch has two writers, and nothing is lost.

    Arguments:
        graceful: each pod had its grace period, so the remote must have every line that an agent has written.

    """
    for index in range(run.size):
        require_index(run, index, graceful=graceful)


def require_index(
    run: Run, index: int, *, graceful: bool, states: Sequence[str] = ("claimed", "done")
) -> None:
    """Fail unless one index went through its states, its branch has one writer, and nothing is lost.

    Arguments:
        graceful: as above.
        states: that the index must have had, in this order.

    """
    agent_id = run.agent_id(index)
    final = run.lines_of(f"refs/heads/ralph/{agent_id}")
    assert [number for number, _ in final] == list(range(1, run.lines + 1)), final
    _require_one_writer(final)
    assert _states(run, index) == [*states]
    updates = [update for update in run.remote.updates() if agent_id in update.ref]
    _require_no_rewrite(run, updates, f"refs/heads/ralph/{agent_id}")
    _require_all_pushed(run, updates, final)
    if graceful:
        lost = set(run.written(index)) - set(final)
        assert not lost, f"lines that an agent has written, and the remote lacks: {lost}"


def require_rescue(run: Run, index: int, session: str, pod: str) -> None:
    """Fail unless a session was fenced, and all that its pod has written comes to the remote.

    Arguments:
        session: the id of the session that lost its claim.
        pod: the address of its pod.

    """
    prefix = f"refs/ralph/rescue/{run.agent_id(index)}/{session}/"

    def is_whole() -> bool:
        refs = [ref for ref in run.remote.refs(prefix) if run.has_lines(ref)]
        rescued = {line for ref in refs for line in run.lines_of(ref)}
        return bool(refs) and {line for line in run.written(index) if line[1] == pod} <= rescued

    # A session that is fenced pushes its work, ends its agent, and pushes what came after that.
    eventually(is_whole, f"every line of {pod} below {prefix}", LIMIT)


def require_output(run: Run, index: int, session: str) -> None:
    """Fail unless the report of a fenced session is below the run's refs, with what its pod has printed."""
    ref = output_ref(run.name, index)

    def commit() -> str | None:
        for found in run.remote.git("rev-list", ref).split():
            name = f"{found}:report.json"
            if not run.remote.attempt("cat-file", "-e", name):
                continue
            if json.loads(run.remote.git("cat-file", "blob", name))["session"] == session:
                return found
        return None

    found = eventually(commit, f"the report of session {session} in {ref}", LIMIT)
    assert "another machine goes on" in run.remote.git("cat-file", "blob", f"{found}:output.log")


def _require_one_writer(final: list[Line]) -> None:
    """Fail if a pod has written again after another one took over."""
    pods = [pod for _, pod in final]
    assert pods == sorted(pods, key=pods.index), f"two pods took turns: {pods}"


def _states(run: Run, index: int) -> list[str]:
    """Return the states that an index has had on the remote."""
    ref = f"refs/ralph/fleet/{run.name}/index/{index}"
    blobs = [update.new for update in run.remote.updates() if update.ref == ref]
    return [json.loads(run.remote.git("cat-file", "blob", blob))["state"] for blob in blobs]


def _require_no_rewrite(run: Run, updates: list[Update], branch: str) -> None:
    """Fail if a push has moved the branch to a commit that lacks one before."""
    moves = [update for update in updates if update.ref == branch]
    assert moves
    for before, after in pairwise(moves):
        run.remote.git("merge-base", "--is-ancestor", before.new, after.new)


def _require_all_pushed(run: Run, updates: list[Update], final: list[Line]) -> None:
    """Fail if the branch lacks a line that once reached the remote.

    A session that goes on elsewhere begins with the last snapshot of its pod. What a fenced session pushes
    stays beside it.
    """
    whole = [run.lines_of(ref) for ref in run.remote.refs("refs/ralph/rescue/") if run.has_lines(ref)]
    for update in updates:
        if set(update.new) != {"0"} and run.has_lines(update.new):
            lines = run.lines_of(update.new)
            places = whole if update.ref.startswith("refs/ralph/rescue/") else [final]
            assert any(lines == kept[: len(lines)] for kept in places), f"{update.ref} had {lines}"
