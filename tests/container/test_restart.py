"""`docker restart` is a pause: what it interrupts goes on when the container starts again."""

import pytest

from tests.container.box import Box, StartBox
from tests.support.repo import Repo

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(180, func_only=True),  # the first test of a worker may wait for the image to be built
]

SESSIONS = 4
LINES = 5000

# Writes numbered lines, waits in the middle of a line, and goes on exactly there after a restart.
WRITING = f"""
half={LINES // 2}
if [ ! -e go ]; then
    seq 1 $half > lines; echo staged > staged; git add staged
    printf "%s" "$half and a " >> lines
    touch "$RALPH_PROJECT/waiting-$RALPH_AGENT_ID"; sleep 600
fi
"""
GOING_ON = f"""
echo half >> lines; seq $(({LINES // 2} + 1)) {LINES} >> lines; git add lines; git commit -qm lines
echo '<promise>COMPLETE</promise>'
"""
SCRIPT = WRITING.replace("[ ! -e go ]", '[ ! -e "$RALPH_PROJECT/go" ]') + GOING_ON


def expected() -> str:
    """Return the file that no interruption can be seen in."""
    first = "".join(f"{number}\n" for number in range(1, LINES // 2 + 1))
    second = "".join(f"{number}\n" for number in range(LINES // 2 + 1, LINES + 1))
    return f"{first}{LINES // 2} and a half\n{second}"


def begin(box: Box, repo: Repo) -> None:
    """Start all sessions, and wait until each is in the middle of its file."""
    for _ in range(SESSIONS):
        box.start("ralph-wrap", "run", "--", "/bin/sh", "-c", SCRIPT)
    box.eventually(lambda: len([*repo.path.glob("waiting-*")]) == SESSIONS, "all agents to be half done")


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_all_sessions_go_on(start_box: StartBox, repo: Repo, how: str) -> None:
    """Each on its branch, byte for byte, with what was staged; the restart itself asks for nothing more."""
    repo.write(".gitignore", ".ralph/\nwaiting-*\ngo\n")
    repo.commit("a project")
    box = start_box(repo.path, env={"RALPH_WRAP_INIT_RESUME": "1"})
    begin(box, repo)
    (repo.path / "go").touch()
    if how == "restart":
        box.container.restart(timeout=30)
    else:
        box.container.kill()
        box.wait()
        box.container.start()
    box.eventually(lambda: len(box.reports()) == 2 * SESSIONS, "all sessions to go on and end")
    after = [report for report in box.reports() if report["ended_by"] == "promise"]
    before = [report for report in box.reports() if report["ended_by"] in {"signal", "killed"}]
    assert {report["branch"] for report in after} == {report["branch"] for report in before}
    assert len(after) == len(before) == SESSIONS
    for report in after:
        assert repo.show(f"{report['branch']}:lines").decode() == expected()
        assert repo.git("ls-tree", "--name-only", report["branch"], "staged") == "staged"
    assert repo.worktrees() == []
