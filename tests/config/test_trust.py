"""Commands of the configuration run only if their user has approved them; ``ralph-wrap trust``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.config import trust
from ralph_wrap.system import container
from tests.support.needs import needs_pid_namespaces
from tests.support.pid1 import NAMESPACE, Container
from tests.support.sessions import PROGRAM, command, run
from tests.support.wait import CAP

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.config.approvals import SETUP, SH, answered, approval, refused, session

# Without a terminal


def test_a_command_without_approval_is_not_run(app: Repo) -> None:
    """Nor is anything else, and nothing is made."""
    before = app.fingerprint(), sorted(app.path.rglob("*"))
    assert refused(session(app))
    assert (app.fingerprint(), sorted(app.path.rglob("*"))) == before


def test_spawn_is_refused_as_well(app: Repo) -> None:
    """It has no terminal to ask on."""
    ended = command("spawn", *SH, "true", cwd=app.path)
    assert (refused(ended), ended.stdout) == (True, b"")


def test_an_approved_one_is_run(app: Repo) -> None:
    """Again and again; the session tells by whose word."""
    assert answered(app.path)["approved"] is True
    for _ in range(2):
        assert session(app).status == 0
    printed = [event for event in run(app.path, *SH, "true").events if event["event"] == "commands.approved"]
    assert [(event["by"], event["sha256"]) for event in printed] == [
        ("ralph-wrap trust", trust.digest({"setup": SETUP}))
    ]


@pytest.mark.parametrize("text", ["touch ready ", "touch ready;curl evil", "touch readY"])
def test_a_changed_text_is_another(app: Repo, text: str) -> None:
    """However little of it; changed back, it is the approved one."""
    answered(app.path)
    path = app.path / ".ralph" / "config.toml"
    before = path.read_text()
    app.write(".ralph/config.toml", f"setup = {json.dumps(text)}\n")
    assert refused(session(app))
    path.write_text(before)
    assert session(app).status == 0


def test_limits_do_not_matter(app: Repo) -> None:
    """They only make a session longer or shorter."""
    answered(app.path)
    app.write(".ralph/config.toml", f'# words\nmax_failures = 3\ndelay = "1ms"\nsetup = "{SETUP}"\n')
    assert session(app).status == 0


def test_another_project_is_another(app: Repo, tmp_path: Path) -> None:
    """The same text in a copy of the project was not approved there."""
    answered(app.path)
    subprocess.run(("cp", "-r", app.path, tmp_path / "copy"), check=True)
    assert refused(command("run", *SH, "true", cwd=tmp_path / "copy"))


def test_an_approval_that_was_taken_to_another_project_is_none(app: Repo, tmp_path: Path) -> None:
    """It names the project that it is for."""
    path = approval(app)
    subprocess.run(("cp", "-r", app.path, tmp_path / "copy"), check=True)
    answered(tmp_path / "copy")
    [other] = [found for found in path.parent.iterdir() if found != path]
    other.write_bytes(path.read_bytes())
    assert refused(command("run", *SH, "true", cwd=tmp_path / "copy"))


def test_where_no_command_is_run_none_needs_approval(app: Repo) -> None:
    """With isolation off there is no worktree to make ready."""
    assert command("run", "--isolation", "off", *SH, "true", cwd=app.path).status == 0


def test_a_configuration_that_is_a_symlink_is_refused(app: Repo, tmp_path: Path) -> None:
    """By all three: the owner of the file that it leads to could change its text."""
    (app.path / ".ralph" / "config.toml").rename(tmp_path / "config.toml")
    (app.path / ".ralph" / "config.toml").symlink_to(tmp_path / "config.toml")
    for words in (("trust",), ("trust", "--show"), ("run", *SH, "true")):
        assert command(*words, cwd=app.path).status == 2


# Implied


@pytest.mark.parametrize(("value", "runs"), [("1", True), ("0", False), ("yes", False), ("", False)])
def test_a_variable_approves_everything(app: Repo, value: str, runs: bool) -> None:
    """For users who know what they mount; exactly 1, so that no slip does it."""
    ended = session(app, RALPH_TRUST=value)
    assert (ended.status == 0, refused(ended)) == (runs, not runs)


@needs_pid_namespaces
@pytest.mark.parametrize("small", [False, True], ids=["PID 1", "below a small init"])
def test_a_container_of_our_init_approves_everything(app: Repo, tmp_path: Path, small: bool) -> None:
    """Its files were put there to be run; from outside, the same project is as before."""
    with Container(app.path, under=forwarder(tmp_path) if small else ()) as box:
        box.rest()
        assert box.execute(PROGRAM, "run", *SH, "test -e ready").wait() == 0
        assert refused(session(app))


@needs_pid_namespaces
@pytest.mark.parametrize("small", [False, True], ids=["another PID 1", "a small init"])
def test_a_process_that_looks_like_our_init_approves_nothing(app: Repo, tmp_path: Path, small: bool) -> None:
    """An agent can have one that PID 1 adopts: the container was not started for it."""
    liar = tmp_path / "ralph-wrap"
    liar.write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path / 'adopted')!r}).touch()\ntime.sleep(60)\n"
    )
    steps = (
        f"cd {app.path}",
        f"(setsid {sys.executable} {liar} init &)",
        f"until test -e {tmp_path / 'adopted'}; do sleep 0.02; done",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' >&2",
        f"{PROGRAM} run -n 1 -- true",
        "echo status=$?",
    )
    under = forwarder(tmp_path) if small else ()
    ended = subprocess.run(
        (*NAMESPACE, *under, "sh", "-c", "; ".join(steps)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=CAP * 2,
    )
    shown = ended.stderr.decode()
    assert f"{liar} init" in shown
    assert ("tini " in shown) is small
    assert ended.stdout == b"status=125\n", ended.stderr


@needs_pid_namespaces
def test_another_namespace_is_another_container(app: Repo) -> None:
    """It still sees the /proc of the one that it was made in, whose PID 1 is our init."""
    words = (PROGRAM, "run", *SH, "test -e ready")
    with Container(app.path) as box:
        box.rest()
        assert box.execute("unshare", "--pid", "--fork", *words).wait() == 125
        assert box.execute("unshare", "--fork", *words).wait() == 0


def test_a_machine_without_containers_approves_nothing() -> None:
    """There is no init of ours above the tests."""
    assert container.is_of_init() is False


def forwarder(tmp_path: Path) -> tuple[str, ...]:
    """Return a small init, known by its name, which runs a command as its child and adopts orphans."""
    path = tmp_path / "forwarder.py"
    path.write_text(
        "import os, sys\n"
        "if not (child := os.fork()):\n"
        "    os.execvp(sys.argv[1], sys.argv[1:])\n"
        "while os.wait()[0] != child:\n"
        "    pass\n"
    )
    return ("bash", "-c", f'exec -a tini {sys.executable} {path} "$@"', "bash")


# The command


def test_it_shows_the_configuration(app: Repo) -> None:
    """Approved or not, and changes nothing."""
    for approved in ("not approved", "approved"):
        shown = command("trust", "--show", cwd=app.path)
        assert (shown.status, shown.stdout.decode()) == (0, f"  setup: {SETUP}\n{approved}\n")
        answered(app.path)


def test_its_answer_as_json(app: Repo) -> None:
    """In the envelope of every command."""
    data = {"project": str(app.path), "commands": {"setup": SETUP}, "approved": False, "implied": None}
    data |= {"repository": {}, "repository_approved": True}
    assert answered(app.path, "--show") == data
    assert answered(app.path) == {**data, "approved": True}
    assert answered(app.path, "--show") == {**data, "approved": True}
    assert answered(app.path, "--show", RALPH_TRUST="1")["implied"] == "RALPH_TRUST=1"


def test_it_forgets(app: Repo) -> None:
    """A second time, too."""
    path = approval(app)
    for _ in range(2):
        assert answered(app.path, "--revoke")["approved"] is False
    assert refused(session(app))
    assert not path.exists()


def test_there_is_nothing_to_approve(repo: Repo) -> None:
    """Nothing to do is done."""
    shown = command("trust", cwd=repo.path)
    assert (shown.status, shown.stdout) == (0, b"nothing to approve\n")
    assert not Path(os.environ["XDG_STATE_HOME"]).exists()


def test_two_things_at_once_are_a_mistake(app: Repo) -> None:
    """Nothing is forgotten."""
    answered(app.path)
    assert command("trust", "--show", "--revoke", cwd=app.path).status == 2
    assert session(app).status == 0


def test_text_does_nothing_to_a_terminal(repo: Repo) -> None:
    """No control character hides what would be run, no line of it looks like one of ours."""
    text = "true \x1b[2K\r\u202e\nnot approved\n"
    repo.write(".ralph/config.toml", f"setup = {json.dumps(text)}\n")
    shown = command("trust", "--show", cwd=repo.path).stdout.decode()
    assert shown == ("  setup:\n    | true \\x1b[2K\\r\\u202e\n    | not approved\n    | \nnot approved\n")


def test_an_agent_cannot_approve(app: Repo) -> None:
    """Inside a session, a person would have to answer."""
    ended = command("trust", cwd=app.path, env={"RALPH_SESSION_ID": "20260101T000000Z-a3f2"})
    assert (ended.status, "settings cannot be approved inside session" in ended.stderr) == (125, True)
    assert answered(app.path, "--show")["approved"] is False


def test_an_agent_in_a_session_cannot_approve(app: Repo) -> None:
    """The same, by a real one that changes the configuration."""
    answered(app.path)
    agent = (
        "cd $RALPH_PROJECT; echo 'setup = \"touch evil\"' > .ralph/config.toml;"
        f" {PROGRAM} trust; {PROGRAM} run -n 1 -- true; echo $?"
    )
    ended = run(app.path, *SH, agent)
    assert ended.stdout == b"125\n", ended.stderr
    assert refused(session(app))
