"""``merge_on_complete``: a session that has kept its promise lands, or says why not and what to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.agent_script import PROMISE, TRUSTED
from tests.support.processes import left
from tests.support.sessions import PROGRAM, command, read_events, run
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("ended")


WORK = "echo done >done; git add done; git commit -qm done"
KEPT = f"{WORK}; echo '{PROMISE}'"


def configure(repo: Repo, **keys: Any) -> None:
    """Write the configuration, approve it, and have git ignore ``.ralph``."""
    rows = {"merge_on_complete": "main", **keys}
    repo.write(".ralph/config.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()))
    assert command("trust", cwd=repo.path).status == 0
    if not (repo.path / ".gitignore").exists():
        repo.write(".gitignore", ".ralph/\n")
        repo.commit("ignore")


def logged(result: Result, event: str) -> list[dict[str, Any]]:
    """Return what a session has narrated of an event, and see that its log has the same."""
    narrated = [entry for entry in result.narration if entry["event"] == event]
    assert [entry for entry in result.events if entry["event"] == event] == narrated
    return narrated


def session(repo: Repo, body: str, *options: str, **env: str) -> Result:
    """Run one."""
    return run(repo.path, "-n", "1", *options, "--", "sh", "-c", body, env=env)


def test_a_kept_promise_lands(repo: Repo) -> None:
    """After the session's own end: its worktree is gone, its report written."""
    configure(repo)
    result = session(repo, KEPT)
    assert result.ending == ("promise", 1, 0)
    (landed,) = logged(result, "branch.landed")
    assert landed["message"] == f"{result.report['branch']} has landed on main (fast-forward)"
    assert (landed["target"], landed["after"]) == ("main", repo.head)
    assert ((repo.path / "done").read_text(), repo.git("status", "--porcelain")) == ("done\n", "")
    assert result.names.index("session.released") < result.names.index("branch.landed")
    assert result.warnings == []


def test_nothing_of_ours_is_loaded_while_the_agent_works(repo: Repo) -> None:
    """Nor to land: it could be of another version by then."""
    configure(repo, check="true")
    code = (
        "import sys; from pathlib import Path\n"
        "from ralph_wrap.session import session\n"
        "from ralph_wrap.interfaces.cli.start import start\n"
        "run = session.Session.run\n"
        "def noted(self):\n"
        "    global before\n"
        "    before = {*sys.modules}\n"
        "    return run(self)\n"
        "session.Session.run = noted\n"
        f"status = start(None, Path(), {{}}, ('sh', '-c', {KEPT!r}))\n"
        "new = [name for name in sys.modules if name.startswith('ralph_wrap') and name not in before]\n"
        "print('after:', status, new)"
    )
    environ = {**os.environ, **TRUSTED}
    done = subprocess.run(
        (sys.executable, "-c", code),
        cwd=repo.path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("after: 0 []\n"), done.stdout + done.stderr
    assert (repo.path / "done").exists()


def test_without_a_promise_nothing_lands(repo: Repo) -> None:
    """Whatever it has committed."""
    configure(repo)
    before = repo.head
    result = session(repo, WORK)
    assert (result.ending, repo.head) == (("max-iterations", 1, 0), before)
    assert "branch.landed" not in result.names


def test_without_the_key_nothing_lands(repo: Repo) -> None:
    """That is the default."""
    before = repo.head
    assert (session(repo, KEPT).ending, repo.head) == (("promise", 1, 0), before)


def test_what_cannot_land_is_a_warning_that_says_what_to_run(repo: Repo) -> None:
    """The status stays the session's own."""
    configure(repo)
    repo.write("file.txt", "mine\n")
    before = repo.head
    result = session(repo, KEPT)
    assert (result.ending, repo.head) == (("promise", 1, 0), before)
    (warning,) = logged(result, "branch.not_landed")
    branch = result.report["branch"]
    where = f"main is checked out in {repo.path}, where changes are not committed: file.txt"
    assert warning["message"] == f"{branch} has not landed on main: {where}"
    hint = warning["hint"].splitlines()[-1]
    assert hint == f"ralph-wrap merge {branch.removeprefix('ralph/')} --into main"
    repo.git("checkout", "-q", "file.txt")
    assert command(*hint.split()[1:], cwd=repo.path).status == 0
    assert (repo.path / "done").exists()


def test_a_check_that_fails_says_where_it_stands(repo: Repo) -> None:
    """Before the command that tries once more."""
    configure(repo, check="false")
    result = session(repo, KEPT, **TRUSTED)
    (warning,) = logged(result, "branch.not_landed")
    about, again = warning["hint"].splitlines()
    assert about == "see its output above; it is check in .ralph/config.toml"
    assert again.endswith(" --into main")


def test_conflicts_have_the_ways_on(repo: Repo) -> None:
    """To merge once more would meet them again."""
    configure(repo)
    edit = f"echo mine > {repo.path}/file.txt; git -C {repo.path} commit -qam mine"
    work = f"echo theirs > file.txt; git commit -qam theirs; echo '{PROMISE}'"
    result = session(repo, f"{work}; {edit}")
    (warning,) = logged(result, "branch.not_landed")
    by_hand, by_agent = warning["hint"].splitlines()
    assert by_hand.endswith(f": git merge {result.report['branch']}")
    assert f": ralph-wrap resume {result.report['id']} -m " in by_agent


def test_a_target_that_is_not_there_is_a_usage_error(repo: Repo) -> None:
    """Before anything is made."""
    configure(repo, merge_on_complete="nowhere")
    result = session(repo, KEPT)
    assert result.status == 2
    assert "merge_on_complete: there is no branch 'nowhere'" in result.stderr
    assert repo.branches() == ["main"]


def test_saved_work_is_named(repo: Repo) -> None:
    """It has not landed."""
    configure(repo)
    result = session(repo, f"{KEPT}; echo new >new")
    (note,) = logged(result, "saved.not_landed")
    assert note["message"] == f"{result.report['saved']} holds work that has not landed"
    assert note["hint"] == f"ralph-wrap apply {result.report['id']}"


def test_a_promise_without_a_commit_has_nothing_to_land(repo: Repo) -> None:
    """And says so."""
    configure(repo)
    before = repo.head
    result = session(repo, f"echo '{PROMISE}'")
    assert (logged(result, "branch.landed")[0]["way"], repo.head) == (None, before)


def test_a_branch_of_another_name_lands_as_well(repo: Repo) -> None:
    """By its name."""
    configure(repo)
    result = session(repo, KEPT, "--branch", "feature/x")
    assert logged(result, "branch.landed")[0]["branch"] == "feature/x"
    assert (repo.path / "done").exists()


def test_the_plain_root_has_no_branch_to_land(repo: Repo) -> None:
    """What was committed there is there."""
    configure(repo, isolation="off")
    result = session(repo, KEPT)
    assert (result.ending, "branch.landed" in result.names, result.warnings) == (("promise", 1, 0), False, [])


def test_a_check_was_approved_before_the_session_began(repo: Repo, tmp_path: Path) -> None:
    """What its agent makes of the configuration meanwhile does not count."""
    configure(repo, check=f"test -e done && touch {tmp_path}/checked")
    assert command("trust", "--revoke", cwd=repo.path).status == 0
    refused = session(repo, KEPT)
    expected = "settings that you have not approved: merge_on_complete, check"
    assert (refused.status, expected in refused.stderr) == (125, True)
    changing = f"echo 'check = \"touch {tmp_path}/other\"' >{repo.path}/.ralph/config.toml"
    result = session(repo, f"{changing}; {KEPT}", RALPH_TRUST="1")
    assert [event["status"] for event in result.events if event["event"] == "check.ended"] == [0]
    assert logged(result, "branch.landed")
    assert ((tmp_path / "checked").exists(), (tmp_path / "other").exists()) == (True, False)


def test_a_check_that_fails_lets_nothing_land(repo: Repo) -> None:
    """The session has kept its promise all the same."""
    configure(repo, check="echo not good enough; exit 3")
    before = repo.head
    result = session(repo, KEPT, RALPH_TRUST="1")
    assert (result.ending, repo.head) == (("promise", 1, 0), before)
    assert "check failed with status 3" in logged(result, "branch.not_landed")[0]["message"]
    assert ("\nnot good enough\n" in result.stderr, b"good enough" in result.stdout) == (True, False)


def test_a_session_in_the_background_lands(repo: Repo) -> None:
    """Its worktree stays until ``rm``."""
    configure(repo)
    started = command("spawn", "-n", "1", "--", "sh", "-c", KEPT, cwd=repo.path)
    assert started.status == 0, started.stderr
    eventually((repo.path / "done").exists, "the branch to land")
    (directory,) = repo.path.glob(".ralph/run/sessions/*")
    eventually(
        lambda: [one for one in read_events(directory) if one["event"] == "branch.landed"], "its event"
    )


def test_sessions_that_end_at_once_land_one_after_the_other(repo: Repo, home: Path) -> None:
    """Each on what the others have made; none is lost."""
    configure(repo)
    count = 4
    body = 'echo x >"$RALPH_AGENT_ID"; git add .; git commit -qm work; echo "' + PROMISE + '"'
    running = [
        subprocess.Popen(
            (PROGRAM, "run", "-n", "1", "--", "sh", "-c", body),
            cwd=repo.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(count)
    ]
    ended = [(process.communicate(timeout=3 * CAP), process.returncode) for process in running]
    assert [status for _, status in ended] == [0] * count, ended
    names = sorted(name.removeprefix("ralph/") for name in repo.branches() if name != "main")
    assert len(names) == count
    there = [name for name in os.listdir(repo.path) if name in names]  # noqa: PTH208 -- names alone
    assert (sorted(there), repo.git("status", "--porcelain")) == (names, "")
    eventually(lambda: left(home) == {}, "nothing to run any more")


def test_a_signal_after_the_promise_lets_nothing_land(repo: Repo) -> None:
    """The user who sends it wants no more to happen."""
    configure(repo)
    before = repo.head
    result = session(repo, f"{KEPT}; kill -TERM $PPID; sleep 600")
    assert (result.status, repo.head) == (143, before)
    assert "branch.landed" not in result.names


OBJECT = (
    "oid=$(git rev-parse REVISION); rest=${oid#??};"
    " file=$(git rev-parse --git-common-dir)/objects/${oid%$rest}/$rest; chmod u+w $file; DAMAGE;"
)
DAMAGES = {
    "a missing file": ("HEAD~:gone", "rm $file"),
    "an empty commit": ("HEAD~", ": >$file"),
    "a truncated tree": ("HEAD~^{tree}", "truncate -s -5 $file"),
    "a flipped byte": ("HEAD~:gone", "printf x | dd of=$file bs=1 seek=5 conv=notrunc 2>&-"),
    "another type": (
        "HEAD~",
        "o=$(git rev-parse HEAD^{tree}); rest=${o#??}; cat ${file%/??/*}/${o%$rest}/$rest >$file",
    ),
}
"""Which object of its own commit an agent damages, and how."""


@pytest.mark.parametrize(("revision", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_commits_do_not_land(repo: Repo, revision: str, damage: str) -> None:
    """The worktree and the branch stay, main does not move, and a message names the object."""
    configure(repo)
    before = repo.head
    broken = OBJECT.replace("REVISION", revision).replace("DAMAGE", damage)
    two = "echo mine >gone; git add gone; git commit -qm one; git rm -q gone"
    body = f"{two}; {WORK}; {broken} echo $oid >../../run/damaged; echo '{PROMISE}'"
    result = session(repo, body)
    oid = (repo.path / ".ralph/run/damaged").read_text().strip()
    assert oid in result.stderr
    assert logged(result, "branch.landed") == []
    assert repo.head == before
    assert (repo.path / result.report["workspace"]).is_dir()
    assert f"ralph/{result.report['id']}" in repo.branches()
