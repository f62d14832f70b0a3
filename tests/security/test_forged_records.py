"""Records say what was. Whatever an agent writes there, nothing more is deleted, ended, merged or run.

``docs/development/records.md`` has each decision in which such a file takes part, and its proof.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ralph_wrap import branches
from ralph_wrap.commands.apply import apply
from ralph_wrap.commands.logs import logs
from ralph_wrap.commands.merge import move_target
from ralph_wrap.commands.resume import resumable
from ralph_wrap.commands.rm import remove
from ralph_wrap.commands.stop import stop
from ralph_wrap.commands.sweep import sweep as sweep_here
from ralph_wrap.errors import RalphError
from ralph_wrap.state import check_results, inventory
from ralph_wrap.state.check_results import CheckResult
from ralph_wrap.state.project import find_project
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system import liveness
from tests.interfaces.web.serving import pages
from tests.security.forgeries import Lies, forge, of_record, of_report, replace_lock
from tests.support.directory_listing import listing
from tests.support.histories import Grown, grow, grow_all, record
from tests.support.merging import branch
from tests.support.orphans import orphan, sweep
from tests.support.sessions import Result, Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.repo import Repo

OTHER = "20260101T000000Z-beef"

AGENT = ("sh", "-c", "echo new > new; touch $RALPH_PROJECT/../up; sleep 600")

NAMES_A_BRANCH = {"base", "branch", "resumes", "worktree", "title", "saved"}
"""The fields by which a record could say that another branch, or another part of it, is meant."""

HARMLESS = (
    ("ps", "--all", "--json"),
    ("review", "--json"),
    ("sweep", "--dry-run"),
    ("sweep",),
    ("drop", "--empty"),
    ("run", "-n", "1", "--drop-empty", "--", "true"),
)
"""Commands that change no ref and no file of the user here, whatever a record says."""


@pytest.fixture
def victim() -> Iterator[int]:
    """Yield the pid of a process of the user that no session has started."""
    with subprocess.Popen(("sleep", "600")) as process:
        yield process.pid
        assert process.poll() is None, "a process of the user was ended"
        process.kill()


def _lies(repo: Repo, commit: str, victim: int) -> Lies:
    precious = repo.path.parent / "precious"
    precious.mkdir()
    (precious / "file").write_text("precious\n")
    return Lies(commit, "release", OTHER, precious, victim, f"--output={repo.path.parent / 'stolen'}")


# A session that lives


def _live_record(session: Session) -> Path:
    directory = session.directory
    return directory.parent.parent / "agents" / f"{directory.name[-4:]}.json"


def test_no_record_makes_a_live_session_dead(repo: Repo, tmp_path: Path, victim: int) -> None:
    """Its lock is replaced, its owner is said to be dead, and each field lies: nothing of it is touched."""
    with Session(repo.path, "--", *AGENT) as session:
        eventually((tmp_path / "up").exists, "the agent")
        path = _live_record(session)
        genuine = json.loads(path.read_text())
        lies = _lies(repo, repo.head, victim)
        project = find_project(repo.path, os.environ)
        replace_lock(path)
        dead = json.loads(path.read_text()) | {"pid": 2**22, "start_time": 0.5}
        worktree = repo.path / ".ralph" / "worktrees" / genuine["session"]
        before = listing(worktree), repo.git("for-each-ref")
        for lie in ({}, *of_record(genuine, lies)):
            path.write_text(json.dumps(dead | dict(lie)))
            found = {(entry.verdict, entry.action) for entry in sweep_here(project)}
            assert found <= {("unknown", "left")}, lie
            assert (listing(worktree), repo.git("for-each-ref")) == before, lie
            assert session.process.poll() is None, lie
            shown = {
                entry.verdict for entry in inventory.sessions(project, datetime.now(UTC), finished=False)
            }
            assert shown <= {"live", "unknown"}, lie
            assert shown, f"ps hides the session: {lie}"
            with pytest.raises(RalphError):
                remove(project, genuine["id"])
            with pytest.raises(RalphError):
                resumable(project, genuine["id"], "main", again=True)
            assert (listing(worktree), repo.git("for-each-ref")) == before, lie
            assert session.process.poll() is None, lie
        path.write_text(json.dumps(dead | {"pid": victim}))
        stop(project, [genuine["id"]], StopMode.NOW)
        session.finish()  # the request has reached this one


def test_without_the_name_of_its_process_a_live_session_is_ended(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack of the test above, with its defence off."""
    with Session(repo.path, "--", *AGENT) as session:
        eventually((tmp_path / "up").exists, "the agent")
        path = _live_record(session)
        replace_lock(path)
        forge(path, {"pid": 2**22, "start_time": 0.5})
        monkeypatch.setattr(liveness.SessionNames, "__contains__", lambda _self, _id: False)
        (entry,) = sweep_here(find_project(repo.path, os.environ))
        assert entry.verdict == "orphan"
        session.wait_for("iteration.ended")


def test_a_worktree_stays_whose_session_lost_its_record(repo: Repo, tmp_path: Path) -> None:
    """The record says that the session has ended; its process says otherwise."""
    with Session(repo.path, "--", *AGENT) as session:
        eventually((tmp_path / "up").exists, "the agent")
        path = _live_record(session)
        forge(path, {"state": "finished"})
        path.rename(session.directory / "record.json")
        path.with_suffix(".lock").unlink()
        removed = command("rm", session.directory.name[-4:], cwd=repo.path)
        assert removed.status == 5, removed.stderr
        assert "a process runs session" in removed.stderr
        assert session.process.poll() is None


# Sessions that have ended


def _ended(repo: Repo, agent_id: str, lies_pid: int) -> tuple[Lies, Path]:
    """Make an ended session with commits, and branches and files of the user."""
    base = repo.head
    grow(repo, "release", base, {"secret": "not released\n"})
    tip = grow(repo, f"ralph/{agent_id}", base, {agent_id: "new\n"})
    session = record(repo, agent_id, base, ended_by="max-iterations", commits=1)
    return _lies(repo, tip, lies_pid), repo.path / ".ralph" / "run" / "sessions" / session


class Forged(NamedTuple):
    """A project in which each ended session has one false field.

    Attributes:
        repo: the project.
        lies: the false fields by agent id, and the file of each.

    """

    repo: Repo
    lies: Mapping[str, tuple[str, Mapping[str, Any]]]

    def seen(self) -> dict[str, object]:
        """Return what a command could take away, merge or write."""
        return {
            "refs": self.repo.git("for-each-ref", "--format=%(refname) %(objectname)"),
            "files": listing(self.repo.path, without={".git", ".ralph"}),
            "beside": listing(self.repo.path.parent, without={self.repo.path.name, "home"}),
        }

    def do(self, *words: str) -> Result:
        """Run a command, which must not fail by a traceback."""
        ended = command(*words, cwd=self.repo.path)
        assert "raceback" not in ended.stderr, ended.stderr
        return ended


@pytest.fixture
def forged(repo: Repo, victim: int) -> Forged:
    """Return a project with a session for each lie about each field of a record and of a report."""
    repo.write(".gitignore", ".ralph/\n")  # else the first session writes it
    repo.commit("base")
    lies, template = _ended(repo, "abcd", victim)
    printed = [
        (name, lie)
        for name, each in (("record.json", of_record), ("report.json", of_report))
        for lie in each(json.loads((template / name).read_text()), lies)
    ]
    base = repo.head
    by_id = {f"{0xA000 + number:04x}": lie for number, lie in enumerate(printed)}
    grow_all(repo, [Grown(f"ralph/{agent_id}", [base], {agent_id: "new\n"}) for agent_id in by_id])
    for agent_id, (name, lie) in by_id.items():
        session = record(repo, agent_id, base, ended_by="max-iterations", commits=1)
        own = {"base": repo.git("rev-parse", f"ralph/{agent_id}")} if lie.get("base") == lies.commit else {}
        forge(template.parent / session / name, {**lie, **own})
    return Forged(repo, by_id)


def test_no_false_field_deletes_moves_or_writes_anything(forged: Forged) -> None:
    """No ref, no file of the user, no file beside the project, and no process of the user."""
    before = forged.seen()
    for words in (*HARMLESS, ("drop", *forged.lies), ("rm", *forged.lies)):
        forged.do(*words)
        assert forged.seen() == before, words
    for agent_id, (_, lie) in forged.lies.items():
        if {*lie} & NAMES_A_BRANCH:
            assert b"+new" in forged.do("diff", agent_id).stdout, lie
    assert forged.seen() == before


def test_no_false_field_applies_anything_else(forged: Forged) -> None:
    """Each session that is named gives its own saved work."""
    repo = forged.repo
    named = [agent_id for agent_id, (_, lie) in forged.lies.items() if {*lie} & NAMES_A_BRANCH]
    grow_all(
        repo, [Grown(f"ralph/{name}-wip", [f"ralph/{name}"], {f"saved-{name}": "saved\n"}) for name in named]
    )
    before, project = forged.seen(), find_project(repo.path, os.environ)
    found = branches.read(project)
    for name in named:
        applied = apply(project, branches.named(found, name), top=repo.path)
        assert applied.branch == f"ralph/{name}-wip"
    assert {*repo.git("ls-files", "--others", "--exclude-standard").split()} == {
        f"saved-{name}" for name in named
    }
    after = forged.seen()
    assert (before["refs"], before["beside"]) == (after["refs"], after["beside"])


def test_no_false_field_shows_anything_else(forged: Forged) -> None:
    """``logs`` and the pages of ``web``: no other file, no other branch, and no page that fails."""
    repo, before = forged.repo, forged.seen()
    project, site = find_project(repo.path, os.environ), pages(repo.path)
    (repo.path.parent / "precious" / "output.log").write_text("precious\n")
    for agent_id, (name, lie) in forged.lies.items():
        [directory] = repo.path.glob(f".ralph/run/sessions/*-{agent_id}")
        (directory / "output.log").write_text(f"said by {agent_id}\n")
        with (repo.path.parent / "shown").open("w+b") as shown:
            with contextlib.suppress(RalphError):
                logs(project, agent_id, events=False, follow=False, descriptor=shown.fileno())
            shown.seek(0)
            assert shown.read() in {b"", f"said by {agent_id}\n".encode()}, lie
        (repo.path.parent / "shown").unlink()
        session, branch = (site.get(f"{page}={agent_id}") for page in ("session?id", "branch?name"))
        assert (session.status, branch.status) == (200, 200), (name, lie)
        assert agent_id in branch.text, lie
        assert [words for words in ("not released", "precious") if words in branch.text + session.text] == []
    (repo.path.parent / "precious" / "output.log").unlink()
    assert forged.seen() == before


def test_no_false_field_merges_anything_else(forged: Forged) -> None:
    """Each session that is named lands its own branch; the user's own branch does not."""
    repo, before = forged.repo, forged.seen()
    named = [agent_id for agent_id, (_, lie) in forged.lies.items() if {*lie} & NAMES_A_BRANCH]
    merged = forged.do("merge", *named)
    assert merged.status == 0, merged.stderr
    landed = {*repo.git("ls-tree", "--name-only", "HEAD").split()}
    assert {*named} <= landed
    assert "secret" not in landed
    after = forged.seen()
    assert before["beside"] == after["beside"]
    assert [row for row in str(before["refs"]).splitlines() if "/main " not in row] == [
        row for row in str(after["refs"]).splitlines() if "/main " not in row
    ]


# A session that died


@pytest.mark.parametrize("pushed", [False, True], ids=["local", "pushed"])
@pytest.mark.parametrize("lie", [{"drop_empty": True}, {"state": "starting"}], ids=["drop_empty", "starting"])
def test_a_branch_with_commits_stays_whatever_base_a_record_names(
    repo: Repo, lie: Mapping[str, Any], pushed: bool
) -> None:
    """The branch is not where it started. A remote that has it is no proof: ``fetch --prune`` ends that."""
    left = orphan(repo, work="echo new > new; git add new; git commit -qm new")
    tip = repo.git("rev-parse", left.branch)
    if pushed:
        repo.git("update-ref", f"refs/remotes/origin/{left.branch}", tip)
    left.change(base=tip, **lie)
    assert sweep(repo).status == 0
    assert repo.git("rev-parse", left.branch) == tip


def test_a_forged_record_deletes_no_branch_of_an_ended_session(repo: Repo, victim: int) -> None:
    """The record of a session that never was, with the id of one that has ended."""
    lies, directory = _ended(repo, "abcd", victim)
    agents = directory.parent.parent / "agents"
    shutil.copy(directory / "record.json", agents / "abcd.json")
    (agents / "abcd.lock").touch()
    here = {"boot_id": liveness.boot_id(), "host": liveness.host(), "lock_inode": 0}
    forge(agents / "abcd.json", {**here, "base": lies.commit, "state": "starting", "drop_empty": True})
    assert sweep(repo).status == 0
    assert not (agents / "abcd.json").exists(), "the sweep did not believe that it is dead"
    assert repo.git("rev-parse", "ralph/abcd") == lies.commit


# What else decides nothing


def test_a_session_goes_on_only_on_a_branch_that_the_user_has_named(repo: Repo) -> None:
    """A record that names a branch of the user would let the agent commit to it."""
    agent = ("sh", "-c", "git commit -q --allow-empty -m evil")
    ended = run(repo.path, "-n", "1", "--", *agent)
    assert ended.directory is not None
    repo.git("branch", "release")
    before, agent_id = repo.git("rev-parse", "release"), ended.directory.name[-4:]
    forge(ended.directory / "record.json", {"branch": "release"})
    refused = command("resume", agent_id, "-n", "1", cwd=repo.path, env={"RALPH_TRUST": ""})
    assert (refused.status, "was not started by you" in refused.stderr) == (125, True), refused.stderr
    assert repo.git("rev-parse", "release") == before
    approved = command("resume", agent_id, "-n", "1", cwd=repo.path, env={"RALPH_TRUST": "1"})
    assert repo.git("log", "-1", "--format=%s", "release") == "evil", approved.stderr


def test_a_branch_that_the_user_has_named_needs_no_second_word(repo: Repo) -> None:
    """Counterpart: also when the session that goes on is a second one."""
    first = run(repo.path, "-n", "1", "--branch", "mine", "--", "true")
    assert first.directory is not None
    for _ in range(2):
        words = ("resume", first.directory.name[-4:], "-n", "1", "--again")
        again = command(*words, cwd=repo.path, env={"RALPH_TRUST": ""})
        assert again.status == 0, again.stderr


def _checks(repo: Repo) -> list[str | None]:
    rows = json.loads(command("review", "--json", cwd=repo.path).stdout)
    return [row["check"] for row in rows["data"] if row["branch"] == "ralph/aaaa"]


def test_only_a_check_that_the_user_has_run_is_shown(repo: Repo) -> None:
    """Without the signature of the user, a result in ``checks.json`` is none."""
    tip = branch(repo, "aaaa", {"new": "new\n"})
    Registry(repo.path / ".ralph" / "run").prepare()
    result = CheckResult(1, "main", repo.head, "2026-01-02T03:04:05+00:00", "hash")
    check_results.keep(find_project(repo.path, os.environ), tip, result)
    assert _checks(repo) == ["failed"]
    path = repo.path / ".ralph" / "run" / "checks.json"
    known = json.loads(path.read_text())
    known["checks"][tip]["status"] = 0
    path.write_text(json.dumps(known))
    assert _checks(repo) == [None]


@pytest.mark.parametrize("believed", [False, True])
def test_a_note_of_a_killed_merge_takes_no_change_of_the_user_away(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, believed: bool
) -> None:
    """An agent writes that the user's uncommitted file came from a merge; believed, it would be put back."""
    tip = branch(repo, "aaaa", {"file.txt": "the user's own work\n"})
    mine = repo.write("file.txt", "the user's own work\n")
    note = {"ref": "refs/heads/main", "old": repo.head, "new": tip, "scratch": "land-00000001"}
    path = repo.write(".ralph/run/landing.json", json.dumps({"version": 1, **note, "signature": "f" * 64}))
    if believed:
        monkeypatch.setattr(move_target, "is_signed", lambda *_: True)
    project = find_project(repo.path, os.environ)
    move_target.recover(project, Registry(repo.path / ".ralph" / "run"))
    assert (path.exists(), path.with_stem("landing-1").exists()) == (False, not believed)
    assert (mine.read_text() == "the user's own work\n") is not believed
