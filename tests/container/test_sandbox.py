"""The sandbox with the defaults of Docker: Landlock works there, and bubblewrap says why it does not."""

import os

import pytest

from ralph_wrap.session.sandbox import launcher
from tests.container.box import StartBox
from tests.support.repo import Repo

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
]

AGENT = """
echo x > "$RALPH_PROJECT/owned" || echo refused
echo one > one && git add one && git commit -qm one
echo two > two
"""


@pytest.mark.skipif(
    launcher.landlock_abi() == 0 and os.environ.get("REQUIRE_SANDBOX") != "1",
    reason="this kernel has no Landlock",
)
def test_landlock_confines_an_agent_in_a_container(repo: Repo, start_box: StartBox) -> None:
    """It writes its worktree alone; without the sandbox it writes the project."""
    box = start_box(repo.path)
    agent = ("-n", "1", "--", "sh", "-c", AGENT)
    confined = box.run("ralph-wrap", "run", "--sandbox", "landlock", *agent)
    assert (confined.status, confined.stdout) == (0, "refused\n"), confined.stderr
    [branch] = [name for name in repo.branches() if name.endswith("-wip")]
    assert (repo.show(f"{branch}:one"), repo.show(f"{branch}:two")) == (b"one\n", b"two\n")
    assert not (repo.path / "owned").exists()
    assert box.run("ralph-wrap", "run", *agent).stdout == ""
    assert (repo.path / "owned").exists()


def test_bubblewrap_is_an_error_in_a_container(repo: Repo, start_box: StartBox) -> None:
    """The session says why, and makes nothing."""
    box = start_box(repo.path)
    ended = box.run("ralph-wrap", "run", "--sandbox", "bwrap", "--", "true")
    assert (ended.status, ended.stderr.count("--sandbox bwrap: bubblewrap")) == (125, 1), ended.stderr
    assert repo.branches() == ["main"]
