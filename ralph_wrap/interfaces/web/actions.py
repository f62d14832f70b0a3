"""What the buttons do: the same as the commands, with the same refusals.

Each calls the use case of its command and keeps, as a note, what that has told. A session that is asked to
stop may take its time: the page waits a moment, the asking goes on without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool

from ralph_wrap import branches
from ralph_wrap.commands import drop as dropping
from ralph_wrap.commands import merge as merging
from ralph_wrap.commands import stop as stopping
from ralph_wrap.config import of_project, trust
from ralph_wrap.errors import RalphError, UntrustedError, UsageError
from ralph_wrap.interfaces.web.escaping import quoted
from ralph_wrap.interfaces.web.flash import Again, Note
from ralph_wrap.state.stop_request import How
from ralph_wrap.system.log import Log, traceback_of
from ralph_wrap.system.process import anonymous_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from ralph_wrap.interfaces.web.pages import Site

    Form = Mapping[str, Sequence[str]]

_PATIENCE = 3.0  # seconds
_ADDRESS = re.compile(r"(?:(?:branch|session)?\?[\w.~%=&+-]*)?", re.ASCII)

_busy = threading.Lock()  # one after the other: what is refused depends on what the one before has done


async def stop(site: Site, form: Form, told: Log) -> Note:
    """Ask a session to end, and wait for a moment until it has."""
    [name] = form.get("id", [""])[:1]
    how = next((how for how in How if [how.value] == [*form.get("how", ())]), How.SOON)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    notes: list[Note] = []

    def work() -> None:
        notes.append(_noted(lambda log: _stopped(site, name, how, log), told))
        with suppress(RuntimeError):  # the server has ended meanwhile
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name="stop", daemon=True).start()
    try:
        await asyncio.wait_for(ended.wait(), _PATIENCE)
    except TimeoutError:
        return Note("done", (f"session {name} is asked to stop: {_ASKED[how]}",))
    return notes[0]


_ASKED = {
    How.AFTER_ITERATION: "it ends after this iteration",
    How.SOON: "its agent is asked to end, then its work is saved",
    How.NOW: "its agent is killed, then its work is saved",
}


def _stopped(site: Site, name: str, how: How, log: Log) -> Note:
    stopped, problem = stopping.stop(site.place, site.environ, [name], how, log)
    if problem is not None:
        raise problem
    return Note("done", tuple(f"session {one.session or one.id}: {one.outcome}" for one in stopped))


async def merge(site: Site, form: Form, told: Log) -> Note:
    """Land branches, or leave everything as it is and say why."""
    names = _names(form)
    way = next((way for way in merging.How if [way.value] == [*form.get("how", ())]), merging.How.MERGE)
    return await run_in_threadpool(_alone, lambda log: _landed(site, names, way, log), told)


def _landed(site: Site, names: Sequence[str], way: merging.How, log: Log) -> Note:
    place, environ = site.place, site.environ
    settings = of_project(place.root)
    known = branches.read(place, environ)
    wanted = list({one.name: one for one in (branches.named(known, name) for name in names)}.values())
    target = merging.target_of(place, environ, None, settings.main)
    if settings.check and not (
        trust.implied(environ) or trust.is_approved(place.root, settings.commands, environ)
    ):
        raise UntrustedError(
            "nobody has approved the check in .ralph/config.toml", "see and approve it: ralph-wrap trust"
        )
    landed = merging.land(
        place,
        environ,
        wanted,
        target,
        told=log,
        how=way,
        check=settings.check,
        check_timeout=settings.check_timeout,
        main=target.name,
        stopped=site.stopped,
    )
    lines = [
        f"{one.branch} has landed on {one.target} ({one.way})"
        if one.outcome == "landed"
        else f"{one.branch}: {one.outcome}"
        for one in landed
        if one.outcome != "left"
    ]
    lines += [
        f"{one.saved} holds work that has not landed" for one in landed if one.saved and one.outcome != "left"
    ]
    left = [f"{one.branch}: {one.reason}" for one in landed if one.outcome == "left"]
    if problem := merging.problem(landed):
        return Note("failed", (*left, *lines), problem.hint)
    return Note("done", tuple(lines))


async def drop(site: Site, form: Form, told: Log) -> Note:
    """Delete branches that are merged; what is not, only if that is asked for again."""
    wanted = dropping.Wanted(tuple(_names(form)), False, False, None, force="force" in form)
    return await run_in_threadpool(_alone, lambda _: _dropped(site, wanted), told)


def _dropped(site: Site, wanted: dropping.Wanted) -> Note:
    rows, failures = dropping.drop(site.place, site.environ, wanted, time.time())
    keep = of_project(site.place.root).keep_dropped
    dropping.expire(site.place, site.environ, keep, time.time())
    gone = [row for row in rows if row.dropped]
    lines = [f"{row.branch} dropped{_with(row.saved, row.branch)}" for row in gone]
    if not failures:
        names = [row.branch for row in gone]
        return Note("done", tuple(lines), "", _again("restore", names, "Bring it back") if gone else None)
    kept = [row.kept for row in rows if row.kept]
    names = [row.branch for row in rows if row.lost and not row.dropped]
    if not names or wanted.force:
        return Note("failed", (*kept, *lines), failures[0].hint)
    label = "Drop it all the same" if len(names) == 1 else f"Drop these {len(names)} all the same"
    hint = "what is dropped can be brought back for a while"
    return Note("failed", (*kept, *lines), hint, _again("drop", names, label, force="1"))


def _with(saved: str | None, branch: str) -> str:
    return f", with {saved}" if saved and saved != branch else ""


async def restore(site: Site, form: Form, told: Log) -> Note:
    """Bring dropped branches back."""
    names = _names(form)
    return await run_in_threadpool(_alone, lambda _: _restored(site, names), told)


def _restored(site: Site, names: Sequence[str]) -> Note:
    found = [dropping.restore(site.place, site.environ, name, time.time()) for name in names]
    lines = [
        f"{one.branch} restored{_with(one.saved, one.branch)}" if one.branch else f"{one.saved} restored"
        for one in found
    ]
    return Note("done", tuple(lines))


def _names(form: Form) -> list[str]:
    """Return the branches that a form names.

    Raises:
        UsageError: it names none.

    """
    names = [unquote(name, errors="surrogateescape") for name in form.get("name", ())]
    if not names:
        raise UsageError("no branch is selected", "select one in the table")
    return names


def _again(action: str, names: Sequence[str], label: str, **more: str) -> Again:
    return Again(action, (*(("name", quoted(name)) for name in names), *more.items()), label)


def _alone(work: Callable[[Log], Note], told: Log) -> Note:
    with _busy:
        return _noted(work, told)


def _noted(work: Callable[[Log], Note], told: Log) -> Note:
    """Do something, and return what was told of it."""
    with _heard() as (log, lines):
        try:
            note = work(log)
        except RalphError as error:
            note = Note("failed", (error.message,), error.hint)
        except Exception as error:  # noqa: BLE001 -- a bug: the next button may work all the same
            told.error("button.failed", f"ralph-wrap failed: {error!r}", traceback=traceback_of(error))
            note = Note("failed", (f"ralph-wrap failed: {error!r}",), "please report this")
        return note._replace(lines=(*note.lines, *lines()))


@contextmanager
def _heard() -> Iterator[tuple[Log, Callable[[], list[str]]]]:
    """Yield a log, and what returns the sentences that it has been told."""
    descriptor = anonymous_file()

    def lines() -> list[str]:
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        events = [json.loads(line) for line in content.splitlines()]
        return [" ".join(filter(None, (event["message"], event.get("hint")))) for event in events]

    try:
        yield Log(descriptor, terminal=False, colour=False), lines
    finally:
        os.close(descriptor)


async def press(name: str, site: Site, form: Form, told: Log) -> str:
    """Do what a button stands for, and return the address to go on at, which shows what became of it.

    Arguments:
        name: one of :data:`BUTTONS`.
        form: what was sent.

    """
    try:
        note = await BUTTONS[name](site, form, told)
    except UsageError as error:
        note = Note("failed", (error.message,), error.hint)
    [address] = form.get("back", [""])[:1]
    gone = name == "drop" and note.kind == "done" and address.startswith("branch")
    if gone or not _ADDRESS.fullmatch(address):
        address = ""
    return f"{address}{'&' if '?' in address else '?'}note={site.notes.put(note)}"


BUTTONS: dict[str, Callable[[Site, Form, Log], Awaitable[Note]]] = {
    "stop": stop,
    "merge": merge,
    "drop": drop,
    "restore": restore,
}
"""The buttons, by the addresses that they are sent to."""
