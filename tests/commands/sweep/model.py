"""A model of sessions: what each deed does to them, and what a sweep then does."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ralph_wrap.commands.sweep import SweptSession, sweep
from ralph_wrap.config import Settings
from ralph_wrap.errors import NotFoundError, RefusedError
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.preflight import Preflight, planned, taken_ids
from ralph_wrap.state import inventory, project
from ralph_wrap.state.claim import claim_id
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.log import Log, get_logger
from ralph_wrap.system.process import OWN_COMMAND
from tests.support.directory_listing import listing
from tests.support.expected_session import INNER, Fate
from tests.support.killable_session import KillableSession, end, sleeper
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from subprocess import Popen

    from ralph_wrap.state.registry import SessionRecord

    Deed = tuple[str, str]
    Life = tuple[dict[str, Any], str, list[Deed], list[Deed], list[Deed]]
from tests.commands.sweep.deeds import DEEDS, LIVES, THEN, UNENDED, deeds_of, differences, without_notes

EVERY_ID = frozenset(f"{number:04x}" for number in range(1 << 16))

MOST = 5
"""Sessions at once."""

# Of this process alone: a sweep ends the git commands of a dead session, which it knows by the session's id.
BEGINNING = datetime(2001, 1, 1, tzinfo=UTC).timestamp() + 1000 * os.getpid()


class Sessions(RuleBasedStateMachine):
    """One project, its sessions, and the processes that disturb them.

    Attributes:
        template: a repository to copy; beside it is one to be nested.

    """

    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(dir=self.template.parent))
        self.repo = Repo(Path(shutil.copytree(self.template, self.top / "project", symlinks=True)))
        self.attic = self.top / "attic"
        self.environ = dict(os.environ)
        self.project = project.find_project(self.repo.path, self.environ)
        self.home = project.own_registry(self.project)
        self.sessions: list[KillableSession] = []
        self.owners: list[Popen[bytes]] = []
        self.numbers = itertools.count(1)
        self.quiet = os.open(os.devnull, os.O_WRONLY)
        self.main = self._main()

    def teardown(self) -> None:
        """End every process; those that delete what was in the trash end by themselves."""
        for session in self.sessions:
            session.close()
        for owner in self.owners:
            end(owner)
        os.close(self.quiet)
        shutil.rmtree(self.top, ignore_errors=True)

    # What happens

    @initialize(lives=st.lists(LIVES, min_size=3, max_size=4), named_like_ours=st.booleans())
    def begin(self, lives: list[Life], named_like_ours: bool) -> None:
        """Start the first sessions beside a worktree of the user's own."""
        name = "20010101T000000Z-ffff" if named_like_ours else "mine"
        self.mine = self.repo.path / ".ralph" / "worktrees" / name
        self.repo.git("worktree", "add", "--quiet", "-b", "mine", self.mine)
        (self.mine / "dirty").write_text("dirty\n")
        for life in lives:
            self._start(life)

    @precondition(lambda self: len(self.unended) < MOST)
    @rule(life=LIVES, then=THEN)
    def start(self, life: Life, then: str) -> None:
        """Start one more session, and end it, perhaps; then, perhaps, sweep."""
        self._start(life)
        self.then(then, self.sessions[-1])

    @precondition(lambda self: self.unended)
    @rule(session=UNENDED, deeds=st.lists(deeds_of(*DEEDS), min_size=1, max_size=2), then=THEN)
    def do(self, session: KillableSession, deeds: list[Deed], then: str) -> None:
        """Do something to a session; then, perhaps, sweep."""
        for deed in deeds:
            self.be(session, deed)
        self.then(then, session)

    def _start(self, life: Life) -> None:
        """Register under the one id that is left, and go on from there."""
        options, stage, *deeds = life
        config = Settings(project=self.repo.path, command=("true",), **options)
        taken = self._ids_taken()
        free = next(
            name for name in map("{:04x}".format, itertools.count()) if name not in taken | self._ids()
        )
        pretended = EVERY_ID - {*taken, free}  # so that it has to pass over all that are taken in truth
        owner = sleeper()
        self.owners.append(owner)
        started = process_table.start_time(owner.pid)
        assert started is not None
        identity = liveness.myself()._replace(pid=owner.pid, start_time=started)
        git = self.project.git
        assert self.project.repository is not None
        preflight = Preflight(self.project.repository.head, {})

        def complete(record: SessionRecord) -> SessionRecord:
            return planned(record, config, self.project, preflight, "true")

        claim, obstacle = project.register_session(
            self.project,
            lambda home: claim_id(
                home,
                identity,
                lambda name="": (pretended & {name} if name else pretended) | taken_ids(self.project, name),
                BEGINNING + next(self.numbers),
                complete,
            ),
        )
        record = claim.record
        assert (record.id, obstacle) == (free, None)
        log = Log(self.quiet, terminal=False, colour=False)
        log.attach(claim.directory / "events.jsonl", agent_id=record.id, session_id=record.session)
        with log.in_use():
            get_logger().event("session.registered")
        context = SessionContext(
            settings=config,
            project=self.project._replace(git=git._replace(env={**git.env, OWN_COMMAND: record.session})),
            base=preflight.base,
            record=record,
            cancel=NEVER,
        )
        attic = self.attic / record.session
        attic.mkdir(parents=True)
        session = KillableSession(self.repo, attic, owner, claim, context, log)
        self.sessions.append(session)
        if stage != "planned":
            session.open()
        if stage == "begun":
            session.begin()
        for deed in itertools.chain(*deeds):
            self.be(session, deed)

    def be(self, session: KillableSession, deed: Deed) -> None:
        """Act as the session, its agent, or a process that disturbs it."""
        kind, how = deed
        if session.ended:
            return
        if kind == "end" and session.alive:
            if fate := session.end(how):
                self._meet({session: fate})
        elif kind == "record":
            session.meddle_with_record(how)
        elif kind == "lock":
            session.move_lock(how)
        elif kind == "process" and session.begun:
            session.come_or_go(how)
        elif kind == "worktree" and session.worktree and session.begun:
            session.move_worktree(how)
        elif kind == "work" and session.worktree and session.begun:
            session.work(how, next(self.numbers), self.template.with_name(INNER))

    # Sweeps

    def then(self, then: str, session: KillableSession) -> None:
        """Sweep, or ask what a sweep would do; or do nothing."""
        foreign = [one.id for one in self.sessions if one.verdict is Verdict.FOREIGN]
        if then == "ask":
            self._ask(session)
        elif then != "nothing":
            self._sweep({"sweep": set[str](), "adopt one": {*foreign[:1]}, "adopt all": {*foreign}}[then])

    def _sweep(self, adopted: set[str]) -> None:
        """Finish each session that is dead, or that the user calls dead, and no other."""
        fates = {one: one.swept() for one in self.sessions if self._is_dead(one, adopted)}
        spared = [one for one in self.sessions if one not in fates and one.record != "gone"]
        expected = self._expected(adopted, lambda session: fates[session])
        before = self._all_of(spared)
        swept = sweep(self.project, adopted=adopted)
        assert without_notes(swept) == expected
        assert differences(before, self._all_of(spared)) == []
        for session in fates:
            assert [process.poll() is None for process in session.left] == [False] * len(session.left)
            if session.alive:  # the user's word was wrong
                session.perish()
        for session in self.sessions:  # a lock without a record is tidied away
            if session.record == "gone" and not session.ended and not session.locked:
                session.lock = {"own": "gone", "copied": "away"}.get(session.lock, session.lock)
        self._meet(fates)

    def _ask(self, session: KillableSession) -> None:
        """Ask what would be done, or be refused; nothing changes either way."""
        verdict = {one.id: one.verdict for one in self.sessions if one.verdict is not None}.get(session.id)
        before = self._all_of(self.sessions) | self._refs()
        if verdict is None and not session.locked:  # perhaps its worktree is there, and only its record gone
            with contextlib.suppress(NotFoundError):
                swept = sweep(self.project, dry_run=True, adopted=[session.id])
                assert (session.id, "would finish") in {(entry.id, entry.action) for entry in swept}
        elif verdict in {None, Verdict.LIVE, Verdict.UNKNOWN}:
            with pytest.raises(NotFoundError if verdict is None else RefusedError):
                sweep(self.project, adopted=[session.id])
        else:
            swept = sweep(
                self.project,
                dry_run=True,
                adopted=[session.id],
            )
            assert without_notes(swept) == self._expected({session.id}, lambda _: Fate("would finish"))
        assert differences(before, self._all_of(self.sessions) | self._refs()) == []

    # The model

    @property
    def unended(self) -> list[KillableSession]:
        """Those that an inventory may know of."""
        return [one for one in self.sessions if not one.ended]

    @staticmethod
    def _is_dead(session: KillableSession, adopted: set[str]) -> bool:
        verdict = session.verdict
        return verdict in {Verdict.ORPHAN, Verdict.FINISHED} or (
            verdict is Verdict.FOREIGN and session.id in adopted
        )

    def _expected(self, adopted: set[str], fate: Callable[[KillableSession], Fate]) -> list[SweptSession]:
        rows = []
        for one in self.sessions:
            if one.verdict in {None, Verdict.LIVE}:
                continue
            assert one.verdict is not None
            name = one.session if one.record == "own" else None
            will = fate(one) if self._is_dead(one, adopted) else Fate("left")
            saved = one.wip_name if will.saved else None
            rows.append(SweptSession(one.id, name, one.verdict.value, will.action, saved))
        return sorted(rows)

    def _meet(self, fates: dict[KillableSession, Fate]) -> None:
        """Take note of what has become of sessions, and look whether all of their work is there."""
        for session, fate in fates.items():
            session.meet(fate)
            if fate.saved:
                session.tips += [self.repo.git("rev-parse", session.wip_name)] * (not fate.released)
                assert self._in_git(session.wip_name) == {
                    name: object_id(content) for name, content in session.files.items()
                }
        branches = {name for one in self.sessions for name in branches_of(one)}
        mine = {ref for ref in self._refs() if ref.startswith("refs/heads/") and ref != "refs/heads/mine"}
        assert mine == {f"refs/heads/{name}" for name in {"main", *branches}}
        held = {*self.repo.git("rev-list", "--all").split()}
        lost = [tip for one in self.sessions if not one.worktree for tip in one.tips if tip not in held]
        assert not lost
        for session in self.sessions:
            if session.worktree:
                assert session.contents() == session.files
                assert (session.present_path / INNER / ".git").is_dir() is session.nested

    @invariant()
    def the_inventory_is_the_model(self) -> None:
        """Every session that is not finished is in it once, with its verdict."""
        found = inventory.unfinished(self.project)
        verdicts = {one.id: one.verdict for one in found}
        assert len(verdicts) == len(found)
        known = {one.id: one.verdict for one in self.sessions if one.verdict is not None}
        assert verdicts == {name: verdict for name, verdict in known.items() if verdict != Verdict.FINISHED}
        for one in self.sessions:
            if one.ended:
                assert inventory.find(self.project, one.session).verdict is Verdict.FINISHED
        free = [one for one in self.sessions if one.lock in {"own", "copied"} and not one.locked]
        assert project.has_ownerless(self.project) is bool(free)

    @invariant()
    def the_disk_is_the_model(self) -> None:
        """Each record, lock, worktree and registration is where it belongs, and there is no other."""
        places = {path for one in self.sessions for path in one.paths()}
        assert {path for path in places if not os.path.lexists(path)} == set()
        root = self.repo.path
        for pattern in ("run/agents/*", "worktrees/*", "run/sessions/*/record.json"):
            assert {*root.glob(f".ralph/{pattern}")} <= {*places, self.mine}, pattern
        registrations = {path for path in places if path.parent.name == "worktrees" and ".git" in path.parts}
        assert {*root.glob(".git/worktrees/*")} == {
            *registrations,
            root / ".git" / "worktrees" / self.mine.name,
        }

    @invariant()
    def the_main_checkout_is_left_alone(self) -> None:
        """Its files, HEAD, index and configuration."""
        assert self._main() == self.main

    # The state of things

    def _main(self) -> dict[str, object]:
        root = self.repo.path
        files: Iterable[Path] = (path for path in root.iterdir() if path.name not in {".git", ".ralph"})
        ours = [*files, *(root / ".git" / name for name in ("HEAD", "index", "config", "refs/heads/main"))]
        return {os.fspath(path): path.read_bytes() for path in ours}

    def _all_of(self, sessions: Iterable[KillableSession]) -> dict[str, object]:
        """Return what belongs to some sessions, and what is the user's own."""
        found: dict[str, object] = {}
        for session in sessions:
            found |= session.belongings()
        for path in (self.mine, self.repo.path / ".git" / "worktrees" / self.mine.name):
            found |= {f"{path}/{name}": entry for name, entry in listing(path).items()}
        return found

    def _refs(self) -> dict[str, object]:
        rows = self.repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return {name: tip for name, _, tip in (row.partition(" ") for row in rows)}

    def _ids(self) -> set[str]:
        return {one.id for one in self.unended}

    def _ids_taken(self) -> set[str]:
        agents = self.home.agents
        files = {path.name[:4] for path in agents.iterdir()} if agents.exists() else set()
        named = re.findall(
            r"^refs/(?:heads/ralph|ralph/snapshots)/([0-9a-f]{4})", "\n".join(self._refs()), re.MULTILINE
        )
        return {*files, *named}

    def _in_git(self, revision: str) -> dict[str, str]:
        rows = self.repo.git("ls-tree", "-r", "-z", revision).split("\0")[:-1]
        return {path: info.split()[2] for info, path in (row.split("\t") for row in rows)}


def branches_of(session: KillableSession) -> list[str]:
    """Return the branches of a session."""
    return [session.branch_name] * session.branch + [session.wip_name] * session.wip


def object_id(content: bytes) -> str:
    """Return how git names a file's content (gitformat-pack(5) and Pro Git, *Git Objects*)."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()
