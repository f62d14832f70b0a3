"""`docker stop` of a container that runs a batch: its sessions are saved, and the same container goes on."""

import pytest

from tests.container.box import Box, StartBox
from tests.support.repo import Repo

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(180, func_only=True),  # the first test of a worker may wait for the image to be built
]

TASKS = ("one", "two", "three")
# Until a file says otherwise, it does half of its task, and hangs.
AGENT = """\
task=$(head -n 1); echo "$task" >> "$RALPH_PROJECT/calls"
if [ ! -e "$RALPH_PROJECT/go" ]; then
  echo half > "$task.half"; : > "$RALPH_PROJECT/calls.$task"; while :; do sleep 0.05; done
fi
echo whole > "$task.txt"; git add .; git commit -qm "$task"
echo '<promise>COMPLETE</promise>'
"""
BATCH = ("ralph-wrap", "batch", "TASKS.md", "-j", "2", "--", "sh", "-c", AGENT)


def _calls(repo: Repo) -> list[str]:
    return sorted((repo.path / "calls").read_text().split())


def _stopped_at_work(start_box: StartBox, repo: Repo) -> Box:
    """Return a container that was stopped while two tasks were half done."""
    repo.write(".gitignore", ".ralph/\ncalls*\ngo\n")
    repo.write("TASKS.md", "".join(f"- [ ] {task}\n" for task in TASKS))
    repo.commit("tasks")
    box = start_box(repo.path, *BATCH)
    for task in TASKS[:2]:
        box.eventually((repo.path / f"calls.{task}").exists, f"the work on {task}")
    assert box.end() == 128 + 15, box.log()
    assert [(report["ended_by"], bool(report["saved"])) for report in box.reports()] == [("signal", True)] * 2
    assert _calls(repo) == ["one", "two"]
    return box


def _assert_all_done(box: Box, repo: Repo) -> None:
    """Check that each task was done once, and that two of them went on with what they had."""
    assert box.wait() == 0, box.log()
    branches = [name for name in repo.branches() if name.startswith("ralph/") and not name.endswith("-wip")]
    assert len(branches) == len(TASKS)
    subjects = repo.git("log", "--format=%s", "--branches=ralph/*", "--not", "HEAD").splitlines()
    assert sorted(subject for subject in subjects if subject in TASKS) == sorted(TASKS)
    assert _calls(repo) == sorted(("one", "one", "three", "two", "two"))
    halves = [name for name in branches if repo.git("ls-tree", "--name-only", name).count(".half")]
    assert len(halves) == len(TASKS[:2])


def test_the_same_container_goes_on(start_box: StartBox, repo: Repo) -> None:
    """`docker start` types the same command again."""
    box = _stopped_at_work(start_box, repo)
    repo.write("go", "")
    box.container.start()
    _assert_all_done(box, repo)


def test_another_container_goes_on_if_the_user_says_so(start_box: StartBox, repo: Repo) -> None:
    """A new one on the same project has no key, and an agent could have written the state."""
    _stopped_at_work(start_box, repo)
    repo.write("go", "")
    refused = start_box(repo.path, *BATCH)
    assert (refused.wait(), "RALPH_TRUST=1" in refused.log()) == (125, True), refused.log()
    _assert_all_done(start_box(repo.path, *BATCH, env={"RALPH_TRUST": "1"}), repo)


SLOW_TO_END = """\
trap 'sleep 2; echo whole > late.txt; exit' TERM
: > "$RALPH_PROJECT/calls.$RALPH_AGENT_ID"; while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("how", ["as the command of the container", "docker exec"])
def test_the_agents_of_a_batch_have_their_grace(start_box: StartBox, repo: Repo, how: str) -> None:
    """They need two seconds to write a file after TERM. A session that gets two of them would hurry."""
    repo.write(".gitignore", ".ralph/\ncalls*\n")
    repo.write("TASKS.md", "- [ ] one\n- [ ] two\n")
    repo.commit("tasks")
    batch = ("ralph-wrap", "batch", "TASKS.md", "-j", "2", "--", "sh", "-c", SLOW_TO_END)
    if how == "docker exec":
        box = start_box(repo.path)
        box.start(*batch)
    else:
        box = start_box(repo.path, *batch)
    box.eventually(lambda: len([*repo.path.glob("calls.*")]) == len(("one", "two")), "both agents to work")
    box.end(20)
    branches = [name for name in repo.branches() if name.endswith("-wip")]
    assert [repo.show(f"{name}:late.txt") for name in branches] == [b"whole\n"] * 2, box.log()
