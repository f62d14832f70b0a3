"""Commands of the configuration run only if their user has approved them; ``ralph-wrap trust``."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import config
from ralph_wrap.config import trust
from ralph_wrap.errors import RalphError
from ralph_wrap.system import container
from tests.support.pid1 import NAMESPACE, Container
from tests.support.sessions import PROGRAM, Result, command, run
from tests.support.terminal import CTRL_C, CTRL_Z, Terminal, shell
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

SH = ("-n", "1", "--", "sh", "-c")
SETUP = "touch ready"
QUESTION = "approve them as they stand, for all sessions of this project? [y/N]"
UID = 54321
"""Somebody else."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces and other users")


@pytest.fixture
def app(repo: Repo) -> Repo:
    """Return a repository that wants to run a command."""
    repo.write(".ralph/config.toml", f'setup = "{SETUP}"\n')
    return repo


def answered(cwd: Path, *arguments: str, **environ: str) -> Any:
    """Run ``ralph-wrap trust --json`` and return its data."""
    ended = command("trust", *arguments, "--json", cwd=cwd, env=environ)
    assert ended.status == 0, ended.stdout
    return json.loads(ended.stdout)["data"]


def session(app: Repo, **environ: str) -> Result:
    """Run a session whose agent fails unless the setup was run."""
    return command("run", *SH, "test -e ready", cwd=app.path, env=environ)


def approval(app: Repo) -> Path:
    """Return the file that holds the project's approval."""
    assert answered(app.path)["approved"]
    [path] = Path(os.environ["XDG_STATE_HOME"]).glob("ralph-wrap/trust/*")
    return path


def refused(ended: Result) -> bool:
    """Tell whether a session was refused for this reason, with the way out."""
    said = ".ralph/config.toml has commands that nobody has approved: setup"
    return ended.status == 125 and said in ended.stderr and "ralph-wrap trust -C " in ended.stderr


# Without a terminal


def test_a_command_that_nobody_approved_is_not_run(app: Repo) -> None:
    """Nor is anything else, and nothing is made."""
    before = app.fingerprint(), sorted(app.path.rglob("*"))
    assert refused(session(app))
    assert (app.fingerprint(), sorted(app.path.rglob("*"))) == before


def test_spawn_is_refused_as_well(app: Repo) -> None:
    """Nobody is there whom it could ask."""
    ended = command("spawn", *SH, "true", cwd=app.path)
    assert (refused(ended), ended.stdout) == (True, b"")


def test_an_approved_one_is_run(app: Repo) -> None:
    """Again and again; the session tells by whose word."""
    assert answered(app.path)["approved"] is True
    for _ in range(2):
        assert session(app).status == 0
    told = [event for event in run(app.path, *SH, "true").events if event["event"] == "commands.approved"]
    assert [(event["by"], event["sha256"]) for event in told] == [
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


def test_other_keys_do_not_matter(app: Repo) -> None:
    """They are no commands."""
    answered(app.path)
    app.write(".ralph/config.toml", f'# words\nmax_failures = 3\nsetup = "{SETUP}"\n')
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
    """By all three: its text could be changed by whoever owns what it leads to."""
    (app.path / ".ralph" / "config.toml").rename(tmp_path / "config.toml")
    (app.path / ".ralph" / "config.toml").symlink_to(tmp_path / "config.toml")
    for words in (("trust",), ("trust", "--show"), ("run", *SH, "true")):
        assert command(*words, cwd=app.path).status == 2


# Implied


@pytest.mark.parametrize(("value", "runs"), [("1", True), ("0", False), ("yes", False), ("", False)])
def test_a_variable_approves_everything(app: Repo, value: str, runs: bool) -> None:
    """For those who know what they mount; exactly 1, so that no slip does it."""
    ended = session(app, RALPH_TRUST=value)
    assert (ended.status == 0, refused(ended)) == (runs, not runs)


@needs_root
@pytest.mark.parametrize("small", [False, True], ids=["PID 1", "below a small init"])
def test_a_container_of_our_init_approves_everything(app: Repo, tmp_path: Path, small: bool) -> None:
    """What is in it was put there to be run; from outside, the same project is as before."""
    with Container(app.path, under=forwarder(tmp_path) if small else ()) as box:
        box.rest()
        assert box.execute(PROGRAM, "run", *SH, "test -e ready").wait() == 0
        assert refused(session(app))


@needs_root
@pytest.mark.parametrize("small", [False, True], ids=["another PID 1", "a small init"])
def test_a_process_that_looks_like_our_init_approves_nothing(app: Repo, tmp_path: Path, small: bool) -> None:
    """An agent can have one that PID 1 adopts: it is not whom the container was started for."""
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


@needs_root
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


def test_it_shows_what_is_configured(app: Repo) -> None:
    """Approved or not, and changes nothing."""
    for approved in ("not approved", "approved"):
        shown = command("trust", "--show", cwd=app.path)
        assert (shown.status, shown.stdout.decode()) == (0, f"  setup: {SETUP}\n{approved}\n")
        answered(app.path)


def test_its_answer_as_json(app: Repo) -> None:
    """In the envelope of every command."""
    data = {"project": str(app.path), "commands": {"setup": SETUP}, "approved": False, "implied": None}
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
    assert (shown.status, shown.stdout) == (0, b"no commands\n")
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
    assert (ended.status, "commands cannot be approved inside session" in ended.stderr) == (125, True)
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


# Where it is kept


def test_it_is_kept_privately_and_outside_the_project(app: Repo) -> None:
    """Nobody else may read or write it; nothing of it is left half-written."""
    path = approval(app)
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)]
    assert modes == [0o600, 0o700]
    assert [*path.parent.iterdir()] == [path]
    assert not path.is_relative_to(app.path)


def test_without_a_variable_it_is_below_home(app: Repo, tmp_path: Path) -> None:
    """Nor by one that is relative, which counts as none."""
    for given in ("", "state"):
        answered(app.path, XDG_STATE_HOME=given)
    assert len([*(tmp_path / "home" / ".local" / "state" / "ralph-wrap" / "trust").iterdir()]) == 1
    assert not (app.path / "state").exists()


@pytest.mark.parametrize("place", [".ralph/state", ".", "link"])
def test_a_state_directory_inside_the_project_is_refused(app: Repo, place: str) -> None:
    """An agent could write it; also by a symlink that leads there. Neither approved nor believed."""
    (app.path.parent / "link").symlink_to(app.path)
    state = os.fspath((app.path.parent if place == "link" else app.path) / place)
    for words in (("trust",), ("trust", "--show"), ("run", *SH, "true")):
        ended = command(*words, cwd=app.path, env={"XDG_STATE_HOME": state})
        assert (ended.status, "inside the project" in ended.stderr) == (125, True)
    assert not [*app.path.rglob("trust")]


def test_a_state_directory_that_cannot_be_written(app: Repo, tmp_path: Path) -> None:
    """Said, with what to do."""
    (tmp_path / "file").touch()
    ended = command("trust", cwd=app.path, env={"XDG_STATE_HOME": os.fspath(tmp_path / "file")})
    assert (ended.status, "cannot be written: Not a directory" in ended.stderr) == (125, True)
    assert "set XDG_STATE_HOME to a writable directory" in ended.stderr


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_others_can_write_is_not_believed(app: Repo, what: str) -> None:
    """They could have approved."""
    path = approval(app)
    target = path if what == "file" else path.parent
    target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IWOTH)
    assert refused(session(app))


@needs_root
def test_what_belongs_to_somebody_else_is_not_believed(app: Repo) -> None:
    """Whose word it is counts."""
    path = approval(app)
    os.chown(path, UID, UID)
    assert refused(session(app))
    os.chown(path, 0, 0)
    assert session(app).status == 0


@needs_root
def test_root_approves_as_whom_it_becomes(app: Repo) -> None:
    """In somebody else's project: their own state directory, and their word."""
    place = Path(tempfile.mkdtemp(prefix="test-trust-"))
    try:
        shutil.copytree(app.path, place / "app")
        (place / "state").mkdir()
        subprocess.run(("chown", "-R", f"{UID}:{UID}", place), check=True)
        state = {"XDG_STATE_HOME": os.fspath(place / "state"), "HOME": os.fspath(place)}
        assert refused(command("run", *SH, "test -e ready", cwd=place / "app", env=state))
        assert answered(place / "app", **state)["approved"]
        [path] = place.glob("state/ralph-wrap/trust/*")
        assert path.stat().st_uid == UID
        assert command("run", *SH, "test -e ready", cwd=place / "app", env=state).status == 0
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_symlink_is_not_believed(app: Repo, tmp_path: Path, what: str) -> None:
    """It may lead to what others can write."""
    path = approval(app)
    target = path if what == "file" else path.parent
    target.rename(tmp_path / "moved")
    target.symlink_to(tmp_path / "moved")
    assert refused(session(app))


@pytest.mark.parametrize("what", ["file", "directory"])
def test_nothing_is_written_through_a_symlink(app: Repo, tmp_path: Path, what: str) -> None:
    """A file is replaced, a directory refused."""
    path = approval(app)
    outside = tmp_path / "outside"
    target = path if what == "file" else path.parent
    target.rename(tmp_path / "old")
    outside.mkdir() if what == "directory" else outside.touch()
    target.symlink_to(outside)
    ended = command("trust", cwd=app.path)
    assert (ended.status == 0) == (what == "file")
    assert (outside.stat().st_size == 0) if what == "file" else not [*outside.iterdir()]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 50_000,
        b'{"version": 1}',
        b'{"version": 2, "project": "PROJECT", "sha256": "DIGEST"}',
        b'{"version": 1, "project": "/", "sha256": "DIGEST"}',
        b'{"version": 1, "project": "PROJECT", "sha256": ""}',
    ],
)
def test_what_is_no_approval_approves_nothing(app: Repo, content: bytes) -> None:
    """Half-written, of a newer version, or for something else: asked again, never a crash."""
    path = approval(app)
    words = {b"PROJECT": os.fsencode(app.path), b"DIGEST": trust.digest({"setup": SETUP}).encode()}
    for word, meant in words.items():
        content = content.replace(word, meant)
    path.write_bytes(content)
    assert not trust.is_approved(app.path, {"setup": SETUP}, os.environ)


def test_what_is_an_approval_approves(app: Repo) -> None:
    """The control of those above; keys that are not known do not matter."""
    path = approval(app)
    wanted = {"version": 1, "project": str(app.path), "sha256": trust.digest({"setup": SETUP}), "more": 1}
    path.write_text(json.dumps(wanted))
    assert trust.is_approved(app.path, {"setup": SETUP}, os.environ)


def test_any_directory_can_be_a_project(tmp_path: Path) -> None:
    """Also one whose name no encoding has."""
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    trust.approve(root, {"setup": "x"}, os.environ)
    assert trust.is_approved(root, {"setup": "x"}, os.environ)
    assert not trust.is_approved(tmp_path / "other", {"setup": "x"}, os.environ)


def test_every_command_of_the_configuration_needs_approval() -> None:
    """A key that is added to the list is part of the text, and of what is shown."""
    settings = config.Settings(project=Path(), command=(), setup="x", check="x")
    assert [*settings.commands] == [*config.COMMANDS]
    assert {*config.COMMANDS} <= {*config.KEYS}
    with pytest.raises(TypeError):
        trust.digest({"setup": object()})


def test_somebody_who_cannot_write_at_all(tmp_path: Path) -> None:
    """A disk that is read-only, say: the error has a hint, and nothing is there."""
    state = tmp_path / "state"
    state.mkdir()
    environ = {"XDG_STATE_HOME": os.fspath(state / "ralph-wrap")}
    (state / "ralph-wrap").write_text("")
    with pytest.raises(RalphError, match="cannot be written"):
        trust.approve(tmp_path / "p", {"setup": "x"}, environ)


# On a terminal


def asked(app: Repo, *words: str, **environ: str) -> Terminal:
    """Start a command on a terminal and wait for its question."""
    terminal = Terminal(PROGRAM, *(words or ("run", *SH, "test -e ready")), cwd=app.path, env=environ)
    terminal.wait_for(QUESTION)
    return terminal


@pytest.mark.parametrize("typed", [b"y\n", b"yes\n", b"Y\n"])
def test_a_person_is_asked_once(app: Repo, typed: bytes) -> None:
    """With the text before their eyes; then it is approved."""
    with asked(app) as terminal:
        assert f"  setup: {SETUP}\n{QUESTION}" in terminal.words
        terminal.type(typed)
        assert terminal.finish() == 0, terminal.words
    assert session(app).status == 0
    with Terminal(PROGRAM, "run", *SH, "test -e ready", cwd=app.path) as terminal:
        assert (terminal.finish(), QUESTION in terminal.words) == (0, False)


@pytest.mark.parametrize("typed", [b"\n", b"n\n", b"no\n", b"yep\n", b"\x04"], ids=repr)
def test_everything_else_is_no(app: Repo, typed: bytes) -> None:
    """The end of the input, too; nothing is made."""
    before = sorted(app.path.rglob("*"))
    with asked(app) as terminal:
        terminal.type(typed)
        assert terminal.finish() == 125
        assert "the commands were not approved" in terminal.words
    assert sorted(app.path.rglob("*")) == before
    assert refused(session(app))


def test_a_changed_text_is_asked_about_again(app: Repo) -> None:
    """With the new one shown."""
    answered(app.path)
    app.write(".ralph/config.toml", 'setup = "touch ready other"\n')
    with asked(app) as terminal:
        assert "  setup: touch ready other\n" in terminal.words
        terminal.type(b"n\n")
        assert terminal.finish() == 125


@pytest.mark.parametrize("isolation", ["prefer", "off"])
def test_an_agent_of_the_configuration_is_a_command(repo: Repo, isolation: str) -> None:
    """Also where no worktree is made ready; other agents do not run it."""
    repo.write(".ralph/config.toml", '[agents.mine]\ncommand = ["sh", "-c", "echo mine"]\n')
    words = ("run", "-n", "1", "--isolation", isolation)
    ended = command(*words, "-p", "task", "--agent", "mine", cwd=repo.path)
    assert (ended.status, ended.stdout) == (125, b"")
    assert "commands that nobody has approved: agents.mine" in ended.stderr
    assert command(*words, "--", "true", cwd=repo.path).status == 0
    assert [*answered(repo.path)["commands"]] == ["agents.mine"]
    ended = command(*words, "-p", "task", "--agent", "mine", cwd=repo.path)
    assert (ended.status, ended.stdout) == (0, b"mine\n")
    shown = command("trust", "--show", cwd=repo.path).stdout.decode()
    assert shown == '  agents.mine: {"command": ["sh", "-c", "echo mine"]}\napproved\n'


def test_what_was_approved_is_what_is_run(app: Repo) -> None:
    """The file is read once: whoever changes it while a person reads the question is too late."""
    with asked(app) as terminal:
        app.write(".ralph/config.toml", 'setup = "touch evil"\n')
        terminal.type(b"y\n")
        assert terminal.finish() == 0, terminal.words
    assert refused(session(app))
    app.write(".ralph/config.toml", f'setup = "{SETUP}"\n')
    assert session(app).status == 0


def test_trust_asks_a_person_as_well(app: Repo) -> None:
    """Also inside a session: it is a person who types."""
    for typed, status in ((b"n\n", 125), (b"y\n", 0)):
        with asked(app, "trust", RALPH_SESSION_ID="s") as terminal:
            terminal.type(typed)
            assert terminal.finish() == status
        assert answered(app.path, "--show")["approved"] is (status == 0)


def test_ctrl_c_is_no_answer(app: Repo) -> None:
    """It ends everything, as it does later."""
    with asked(app) as terminal:
        terminal.type(CTRL_C)
        assert terminal.finish() == 128 + signal.SIGINT
    assert refused(session(app))


def test_ctrl_z_and_back(app: Repo) -> None:
    """The question is still open."""
    typed = shlex.join((PROGRAM, "run", *SH, "test -e ready"))
    with Terminal(*shell("ready> "), cwd=app.path) as terminal:
        terminal.wait_for("ready> ")
        terminal.type(f"{typed}\n".encode())
        terminal.wait_for(QUESTION)
        terminal.type(CTRL_Z)
        terminal.wait_for("[1]+  Stopped")
        terminal.type(b"fg\n")
        eventually(lambda: terminal.read().count(b"test -e ready") > 2, "the session to go on")
        terminal.type(b"y\n")
        terminal.wait_for("ready> ", 3)
        terminal.type(b"echo status=$?\n")
        terminal.wait_for("status=0")


def test_what_was_typed_before_is_no_answer(app: Repo) -> None:
    """It was meant for something else."""
    script = f"read -r go; {PROGRAM} run -n 1 -- true"
    with Terminal("sh", "-c", script, cwd=app.path) as terminal:
        terminal.type(b"go\ny\ny\n")
        terminal.wait_for(QUESTION)
        terminal.type(b"n\n")
        assert terminal.finish() == 125
    assert refused(session(app))


def test_a_session_in_the_background_of_a_terminal_is_refused(app: Repo) -> None:
    """It would be stopped by the question (SIGTTIN)."""
    with Terminal(*shell("ready> "), cwd=app.path) as terminal:
        terminal.wait_for("ready> ")
        terminal.type(f"{PROGRAM} run -n 1 -- true & wait $!; echo status=$?\n".encode())
        terminal.wait_for("status=125")
