"""The buttons: each does the same as its command, with the same refusals.

Each button calls the function of its command, and keeps the logged messages as a note. A session may take
long to stop, or to start. The page waits some seconds for it, and a thread waits on.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool

from ralph_wrap import branches
from ralph_wrap.branches.dropped import find
from ralph_wrap.commands import apply as applying
from ralph_wrap.commands import drop as dropping
from ralph_wrap.commands import merge as merging
from ralph_wrap.commands import rm as removing
from ralph_wrap.commands import stop as stopping
from ralph_wrap.commands import tell as telling
from ralph_wrap.config import of_project, trust
from ralph_wrap.config.authority import needed_to_land
from ralph_wrap.errors import RalphError, RefusedError, UsageError, explained
from ralph_wrap.interfaces.web.escaping import plain, quoted
from ralph_wrap.interfaces.web.flash import FlashMessage, RetryForm
from ralph_wrap.interfaces.web.pages import PageContext
from ralph_wrap.state import inventory
from ralph_wrap.state.audit.look import audit
from ralph_wrap.state.audit.warnings import tampered
from ralph_wrap.state.project import repository_of
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system import process
from ralph_wrap.system.files import anonymous_file
from ralph_wrap.system.log import Log, current, get_logger, traceback_of
from ralph_wrap.system.text import command, some
from ralph_wrap.worktree import temporary

log = get_logger()

Form = Mapping[str, Sequence[str]]

_STOP_PATIENCE, _START_PATIENCE = 3.0, 10.0  # seconds that a page waits for the end of a session, or a start
_FILES = 20  # that a note names
_ADDRESS = re.compile(r"(?:dropped|(?:branch|saved|session)?\?[\w.~%=&+-]*)?", re.ASCII)

_busy = threading.Lock()  # one action at a time: a refusal depends on what the action before it did


async def stop(context: PageContext, form: Form) -> FlashMessage:
    """Ask a session to end, and wait up to 3 s for its end."""
    [name] = form.get("id", [""])[:1]
    mode = next((mode for mode in StopMode if [mode.value] == [*form.get("how", ())]), StopMode.SOON)
    waits = FlashMessage("done", (f"session {name} has a stop request: {_EFFECTS[mode]}",))
    return await _soon(lambda: _stopped(context, name, mode, waits), waits, _START_PATIENCE)


async def _soon(work: Callable[[], FlashMessage], waits: FlashMessage, patience: float) -> FlashMessage:
    """Do some work in a thread of its own, and return its note; if it takes long, the note that it goes on.

    A failure after that is in the log of the server.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    notes: list[FlashMessage] = []

    is_late = False

    def run() -> None:
        notes.append(_noted(work))
        if is_late and notes[0].kind == "failed":
            log.warning("button.failed_late", "; ".join(notes[0].lines), notes[0].hint)
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(ended.set)

    here = contextvars.copy_context()  # the log of the server
    threading.Thread(target=here.run, args=(run,), name="button", daemon=True).start()
    try:
        await asyncio.wait_for(ended.wait(), patience)
    except TimeoutError:
        is_late = True
        return waits
    return notes[0]


_EFFECTS = {
    StopMode.AFTER_ITERATION: "it ends after this iteration",
    StopMode.SOON: "it asks its agent to end, then saves the work",
    StopMode.NOW: "it kills its agent, then saves the work",
}


def _stopped(context: PageContext, name: str, mode: StopMode, waits: FlashMessage) -> FlashMessage:
    """Wait a short time only: the thread of each click would live until the end."""
    stopped, problem = stopping.stop(context.project, [name], mode, _STOP_PATIENCE)
    if problem is not None:
        raise problem
    if any(session.outcome == "asked" for session in stopped):
        return waits
    return FlashMessage(
        "done", tuple(f"session {session.session or session.id}: {session.outcome}" for session in stopped)
    )


async def tell(context: PageContext, form: Form) -> FlashMessage:
    """Tell a session something; the next prompt of its agent begins with it."""
    [name] = form.get("id", [""])[:1]
    [text] = form.get("text", [""])[:1]
    now = [*form.get("how", ())] == ["now"]
    # A browser sends each end of a line as CR LF (HTML, "constructing the entry list").
    return await run_in_threadpool(_alone, lambda: _told(context, name, text.replace("\r\n", "\n"), now=now))


def _told(context: PageContext, name: str, text: str, *, now: bool) -> FlashMessage:
    _, problem = telling.tell(context.project, [name], text, now=now)
    if problem is not None:
        raise problem
    return FlashMessage("done", ())


async def merge(context: PageContext, form: Form) -> FlashMessage:
    """Land branches on the main branch, or change nothing and show the reason."""
    names = _names(form)
    method = next(
        (method for method in merging.MergeMethod if [method.value] == [*form.get("how", ())]),
        merging.MergeMethod.MERGE,
    )
    return await run_in_threadpool(_alone, lambda: _landed(context, names, method))


def _landed(context: PageContext, names: Sequence[str], method: merging.MergeMethod) -> FlashMessage:
    project = context.project
    if (result := audit(project)).refused:
        raise tampered(result)
    settings = of_project(project.main, project.environ)
    trust.require(project.main, settings.stated, project.environ, needed_to_land(settings).__contains__)
    all_branches = branches.read(project)
    wanted = list(
        {branch.name: branch for branch in (find(project, all_branches, name) for name in names)}.values()
    )
    target = merging.target_of(project, None, settings.main)
    temporary.require_turn(repository_of(project))  # a page that waits shows no message
    return _landing_note(
        merging.land(
            project,
            wanted,
            target,
            method=method,
            check=settings.landing_check,
            check_timeout=settings.check_timeout,
            main=target.name,
            cancel=context.cancel,
        )
    )


def _landing_note(landed: Sequence[merging.LandingResult]) -> FlashMessage:
    lines = [
        f"{result.branch} has landed on {result.target} ({result.way})"
        if result.outcome == "landed"
        else f"{result.branch}: {result.outcome}"
        for result in landed
        if result.outcome != "left"
    ]
    lines += [
        f"{result.saved} holds work that has not landed"
        for result in landed
        if result.saved and result.outcome != "left"
    ]
    reasons = [f"{result.branch}: {result.reason}" for result in landed if result.outcome == "left"]
    if problem := merging.problem(landed):
        return FlashMessage("failed", (*reasons, *lines), problem.hint)
    return FlashMessage("done", tuple(lines))


async def drop(context: PageContext, form: Form) -> FlashMessage:
    """Delete merged branches. An unmerged branch stays, and the answer has a button to delete it."""
    wanted = dropping.DropSelection(tuple(_names(form)), False, False, None, force="force" in form)
    stay = tuple(form.get("stays", ()))
    return await run_in_threadpool(_alone, lambda: _dropped(context, wanted, stay))


def _dropped(context: PageContext, wanted: dropping.DropSelection, stay: Sequence[str]) -> FlashMessage:
    """Drop branches.

    Arguments:
        stay: why other branches stay that were selected with them; the button *Drop anyway* leaves them out.

    """
    project = context.project
    keep = of_project(project.main, project.environ, "keep_dropped").keep_dropped
    dropping.expire(project, keep, time.time())  # first: an earlier branch of this name may be overdue
    rows, failures = dropping.drop(project, wanted, time.time())
    dropped = [row for row in rows if row.dropped]
    lines = [f"{row.branch} dropped{_with(row.saved, row.branch)}" for row in dropped]
    lines += [
        f"{remote} still has {row.id}; to delete that, too:"
        f" {command('ralph-wrap', 'drop', str(row.id), '--remote', remote, *['--force'] * wanted.force)}"
        for row in dropped
        for remote in row.remotes
    ]
    reasons = [*(row.kept for row in rows if row.kept), *stay]
    restore = _again("restore", [row.branch for row in dropped], "Restore") if dropped else None
    if not failures:
        return FlashMessage("failed" if stay else "done", (*reasons, *lines), "", restore)
    refused = {error.message for error in failures if isinstance(error, RefusedError)}  # others are in use
    names = [row.branch for row in rows if row.kept in refused]
    if not names or wanted.force:
        return FlashMessage("failed", (*reasons, *lines), failures[0].hint, restore)
    label = "Drop it anyway" if len(names) == 1 else f"Drop these {len(names)} anyway"
    hint = "a dropped branch can be restored for some time"
    others = [("stays", row.kept) for row in rows if row.kept and row.kept not in refused]
    return FlashMessage(
        "failed", (*reasons, *lines), hint, _again("drop", names, label, ("force", "1"), *others)
    )


def _with(saved: str | None, branch: str) -> str:
    return f", with {saved}" if saved and saved != branch else ""


async def restore(context: PageContext, form: Form) -> FlashMessage:
    """Restore dropped branches."""
    names = _names(form)
    return await run_in_threadpool(_alone, lambda: _restored(context, names))


def _restored(context: PageContext, names: Sequence[str]) -> FlashMessage:
    restored = [dropping.restore(context.project, name, time.time()) for name in names]
    lines = [
        f"{branch.branch} restored{_with(branch.saved, branch.branch)}"
        if branch.branch
        else f"{branch.saved} restored"
        for branch in restored
    ]
    return FlashMessage("done", tuple(lines))


async def apply(context: PageContext, form: Form) -> FlashMessage:
    """Put the saved work of a branch into the main checkout, or change nothing and show the reason."""
    names = _names(form)
    return await run_in_threadpool(_alone, lambda: _applied(context, names[0]))


def _applied(context: PageContext, name: str) -> FlashMessage:
    project = context.project
    if (result := audit(project)).refused:
        raise tampered(result)
    branch = find(project, branches.read(project), name)
    temporary.require_turn(repository_of(project))  # a page that waits shows no message
    applied = applying.apply(project, branch, top=project.main, cancel=context.cancel)
    lines = [f"submodule {path} stays at its commit" for path in applied.submodules]
    if not applied.files:
        return FlashMessage("done", (f"{applied.checkout} has this work already", *lines))
    first = f"these files of {branch.saved_name} are in {applied.checkout} now, and not staged:"
    return FlashMessage("done", (first, *some(applied.files, _FILES, " files"), *lines))


async def resume(context: PageContext, form: Form) -> FlashMessage:
    """Go on where a session ended, in the background; wait up to 10 s until its agent has started."""
    [name] = form.get("id", [""])[:1]
    waits = FlashMessage("done", (f"session {name} is starting again",))
    return await _soon(lambda: _resumed(context, name), waits, _START_PATIENCE)


def _resumed(context: PageContext, name: str) -> FlashMessage:
    """Run the command, which starts a process; there is no terminal on which it could ask for an approval."""
    project = context.project
    session = inventory.find(project, name)
    # -P: Python must not import modules from the project.
    words = (sys.executable, "-P", "-m", "ralph_wrap", "resume", "--background", session.id)
    ended = process.run_apart(words, cwd=project.checkout, env=project.environ)
    said = plain(ended.stderr).strip().splitlines()
    lines = tuple(line.removeprefix("ralph-wrap: ") for line in said)
    if ended.status:
        return FlashMessage("failed", lines or (f"resume ended with status {ended.status}",))
    return FlashMessage("done", (f"session {session.id} goes on", *lines))


async def rm(context: PageContext, form: Form) -> FlashMessage:
    """Remove the worktree that a session kept at its end; later edits are saved."""
    [name] = form.get("id", [""])[:1]
    return await run_in_threadpool(_alone, lambda: _removed(context, name))


def _removed(context: PageContext, name: str) -> FlashMessage:
    session = removing.remove(context.project, name)
    lines = [f"the worktree of session {session.session} is removed"]
    if not session.removed:
        lines = [f"session {session.session} has no worktree any more"]
    return FlashMessage(
        "done", (*lines, *([f"{session.saved} holds its saved work"] if session.saved else []))
    )


def _names(form: Form) -> list[str]:
    """Return the branches that a form names.

    Raises:
        UsageError: the form names no branch.

    """
    names = [unquote(name, errors="surrogateescape") for name in form.get("name", ())]
    if not names:
        raise UsageError("no branch is selected", "select a branch in the table")
    return names


def _again(action: str, names: Sequence[str], label: str, *fields: tuple[str, str]) -> RetryForm:
    return RetryForm(action, (*(("name", quoted(name)) for name in names), *fields), label)


def _alone(work: Callable[[], FlashMessage]) -> FlashMessage:
    with _busy:
        return _noted(work)


def _noted(work: Callable[[], FlashMessage]) -> FlashMessage:
    """Do some work, and return a note with its messages."""
    server = current()
    with _captured() as lines:
        try:
            note = work()
        except (RalphError, OSError) as error:
            expected = explained(error) if isinstance(error, OSError) else error
            note = FlashMessage("failed", (expected.message,), expected.hint)
        except Exception as error:  # noqa: BLE001 -- a bug: the next button may work
            with server.in_use():
                log.error("button.failed", f"ralph-wrap failed: {error!r}", traceback=traceback_of(error))
            note = FlashMessage("failed", (f"ralph-wrap failed: {error!r}",), "please report this")
        return note._replace(lines=(*note.lines, *lines()))


@contextmanager
def _captured() -> Iterator[Callable[[], list[str]]]:
    """Keep what is logged from stderr; yield a function that returns the messages."""
    descriptor = anonymous_file()

    def lines() -> list[str]:
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        events = [json.loads(line) for line in content.splitlines()]
        return [" ".join(filter(None, (event["message"], event.get("hint")))) for event in events]

    try:
        with Log(descriptor, terminal=False, colour=False, as_json=True).in_use():
            yield lines
    finally:
        os.close(descriptor)


async def press(name: str, context: PageContext, form: Form) -> str:
    """Do the work of a button, and return the address of the page that shows the result.

    Arguments:
        name: one of :data:`BUTTONS`.
        form: the fields that the browser sent.

    """
    try:
        note = await BUTTONS[name](context, form)
    except UsageError as error:
        note = FlashMessage("failed", (error.message,), error.hint)
    [address] = form.get("back", [""])[:1]
    page_is_gone = name == "drop" and note.kind == "done" and address.startswith("branch")
    if page_is_gone or not _ADDRESS.fullmatch(address):
        address = ""
    return f"{address}{'&' if '?' in address else '?'}note={context.notes.put(note)}"


BUTTONS: dict[str, Callable[[PageContext, Form], Awaitable[FlashMessage]]] = {
    "stop": stop,
    "tell": tell,
    "merge": merge,
    "drop": drop,
    "restore": restore,
    "apply": apply,
    "rm": rm,
    "resume": resume,
}
"""The buttons, by their addresses."""
