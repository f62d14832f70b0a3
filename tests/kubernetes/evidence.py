"""What must hold on the remote after a run, whatever happened to its pods and its nodes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        agent_id = run.agent_id(index)
        final = run.lines_of(f"refs/heads/ralph/{agent_id}")
        assert [number for number, _ in final] == list(range(1, run.lines + 1)), final
        _require_one_writer(final)
        _require_one_end(run, index)
        updates = [update for update in run.remote.updates() if agent_id in update.ref]
        _require_no_rewrite(run, updates, f"refs/heads/ralph/{agent_id}")
        _require_all_pushed(run, updates)
        if graceful:
            lost = set(run.written(index)) - set(final)
            assert not lost, f"lines that an agent has written, and the remote lacks: {lost}"


def _require_one_writer(final: list[Line]) -> None:
    """Fail if a pod has written again after another one took over."""
    pods = [pod for _, pod in final]
    assert pods == sorted(pods, key=pods.index), f"two pods took turns: {pods}"


def _require_one_end(run: Run, index: int) -> None:
    """Fail unless the state of the index became final once."""
    ref = f"refs/ralph/fleet/{run.name}/index/{index}"
    blobs = [update.new for update in run.remote.updates() if update.ref == ref]
    states = [json.loads(run.remote.git("cat-file", "blob", blob))["state"] for blob in blobs]
    assert states == ["claimed", "done"]


def _require_no_rewrite(run: Run, updates: list[Update], branch: str) -> None:
    """Fail if a push has moved the branch to a commit that lacks one before."""
    moves = [update for update in updates if update.ref == branch]
    assert moves
    for before, after in pairwise(moves):
        run.remote.git("merge-base", "--is-ancestor", before.new, after.new)


def _require_all_pushed(run: Run, updates: list[Update]) -> None:
    """Fail if no ref has a version any more that once reached the remote.

    A session that goes on elsewhere begins at its branch; the last snapshot of its pod stays beside it.
    """
    whole = [run.lines_of(ref) for ref in run.remote.refs() if run.has_lines(ref)]
    for update in updates:
        if set(update.new) != {"0"} and run.has_lines(update.new):
            lines = run.lines_of(update.new)
            assert any(lines == kept[: len(lines)] for kept in whole), f"{update.ref} had {lines}"
