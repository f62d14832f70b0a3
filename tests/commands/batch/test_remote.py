"""A batch whose sessions mirror themselves on a remote."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.commands.batch.batches import result_of
from tests.support.machines import claim_of, refs
from tests.support.repo import Repo
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.commands.batch.batches import Batch

HANG = 'echo "$task" > left; : > "$RALPH_PROJECT/calls.$task"; while :; do sleep 0.05; done\n'
OPTIONS = ("-j", "2", "--remote", "origin")


def _states(remote: Repo, ids: set[str]) -> dict[str, str]:
    return {agent_id: claim_of(remote, agent_id)["state"] for agent_id in ids}


def test_a_killed_batch_leaves_its_work_on_the_remote_and_goes_on(batch: Batch, tmp_path: Path) -> None:
    """Its sessions push what they have saved, and give their claims back. The next batch takes them again."""
    batch.repo.git("clone", "-q", "--bare", str(batch.repo.path), str(tmp_path / "remote.git"))
    batch.repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    remote = Repo(tmp_path / "remote.git")
    batch.during(HANG)
    process = batch.start(*OPTIONS)
    for task in ("one", "two"):
        eventually((batch.repo.path / f"calls.{task}").exists, f"the work on {task}")
    process.kill()
    assert result_of(process).status == -signal.SIGKILL
    begun = batch.ids
    eventually(lambda: {*_states(remote, begun).values()} == {"stopped"}, "the last pushes")
    saved = [remote.show(f"refs/heads/ralph/{agent_id}-wip:left") for agent_id in begun]
    assert sorted(saved) == [b"one\n", b"two\n"]
    batch.during("")
    again = batch.run(*OPTIONS)
    assert again.status == 0, again.stderr
    assert batch.calls == ["one", "one", "three", "two", "two"]
    assert begun < batch.ids
    assert _states(remote, batch.ids) == dict.fromkeys(batch.ids, "done")
    branches = [f"refs/heads/ralph/{agent_id}" for agent_id in batch.ids]
    assert {ref: refs(remote)[ref] for ref in branches} == {
        ref: batch.repo.git("rev-parse", ref) for ref in branches
    }
