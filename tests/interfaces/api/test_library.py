"""The library: what a Python program gets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ralph_wrap
from ralph_wrap import Session, Settings
from ralph_wrap.config import Isolation
from ralph_wrap.errors import AgentNotFoundError, UsageError
from ralph_wrap.system import process_tree
from tests.support.submodules import ALLOWED, make_project

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo


def test_a_session_from_python(repo: Repo, script: Callable[[str], str]) -> None:
    """Enter, run, leave, read the report."""
    with Session(Settings(project=repo.path, command=(script("echo x > new"),), max_iterations=1)) as session:
        assert session.workspace.path.is_dir()
        assert session.run().ended_by == "max-iterations"
    assert session.report is not None
    assert session.report.saved is not None
    assert repo.show(f"{session.report.saved}:new") == b"x\n"
    assert not session.workspace.path.exists()


def test_a_start_that_fails_late_leaves_nothing(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worktree is there already, and no agent has worked in it."""

    def fail() -> None:
        raise OSError("no more descriptors")

    monkeypatch.setattr(process_tree, "become_subreaper", fail)
    settings = Settings(project=repo.path, command=("true",))
    with pytest.raises(OSError, match="no more descriptors"), Session(settings, whole_process=True):
        pass
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_a_workspace_without_a_loop(repo: Repo) -> None:
    """Work done in the block is saved like an agent's, and the branch stays."""
    with Session(Settings(project=repo.path, command=("true",))) as session:
        (session.workspace.path / "new").write_text("x\n")
    assert session.report is not None
    assert repo.show(f"{session.report.saved}:new") == b"x\n"


def test_an_exception_in_the_block_loses_nothing(repo: Repo) -> None:
    """It is raised on, after everything was saved and removed."""
    session = Session(Settings(project=repo.path, command=("true",)))

    def fail() -> None:
        (session.workspace.path / "new").write_text("x\n")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), session:
        fail()
    assert session.report is not None
    assert (session.report.ended_by, session.report.exit_status) == ("error", 125)
    assert repo.show(f"{session.report.saved}:new") == b"x\n"


def test_a_session_in_a_thread(repo: Repo, script: Callable[[str], str]) -> None:
    """Where no handlers can be set, the loop runs all the same."""
    reports = []

    def work() -> None:
        settings = Settings(project=repo.path, command=(script("echo x > new"),), max_iterations=1)
        with Session(settings) as session:
            session.run()
        reports.append(session.report)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert [report and report.ended_by for report in reports] == ["max-iterations"]


def _works(pid: int) -> bool:
    """Return whether a process is there and no zombie: those have no command line (proc(5))."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def test_handlers_and_children_of_the_host_are_left_alone(repo: Repo, script: Callable[[str], str]) -> None:
    """A session ends its agent's processes, not those of the program that it runs in."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    with subprocess.Popen(("cat",), stdin=subprocess.PIPE) as mine:
        try:
            agent = script("(setsid sleep 600 >/dev/null 2>&1 & echo $! > child)")
            with Session(Settings(project=repo.path, command=(agent,), max_iterations=1)) as session:
                session.run()
            assert mine.poll() is None
        finally:
            mine.kill()
    assert session.report is not None
    child = int(repo.show(f"{session.report.saved}:child"))
    assert not _works(child)
    assert {number: signal.getsignal(number) for number in before} == before


def test_the_interpreters_exit_ends_a_session(repo: Repo) -> None:
    """A program that forgets to leave the block still loses nothing."""
    program = (
        "from pathlib import Path\n"
        "from ralph_wrap import Session, Settings\n"
        f"session = Session(Settings(project=Path({str(repo.path)!r}), command=('true',)))\n"
        "session.__enter__()\n"
        "(session.workspace.path / 'new').write_text('x')\n"
    )
    subprocess.run((sys.executable, "-c", program), check=True, capture_output=True, cwd=repo.path)
    [saved] = [name for name in repo.branches() if name.endswith("-wip")]
    assert repo.show(f"{saved}:new") == b"x"


def test_errors_come_before_anything_is_made(repo: Repo) -> None:
    """A wrong setting leaves no trace."""
    before = sorted(repo.path.rglob("*"))
    with pytest.raises(AgentNotFoundError), Session(Settings(project=repo.path, command=("no-such-agent",))):
        pass
    with pytest.raises(UsageError), Session(Settings(project=repo.path, command=("true",), base="nowhere")):
        pass
    assert sorted(repo.path.rglob("*")) == before


def test_the_public_names_are_there() -> None:
    """What __all__ promises can be had, and nothing else is pretended."""
    assert [getattr(ralph_wrap, name).__name__ for name in ralph_wrap.__all__] == ralph_wrap.__all__
    with pytest.raises(AttributeError):
        _ = ralph_wrap.nothing  # type: ignore[attr-defined]


def test_nothing_is_loaded_before_it_is_used() -> None:
    """A program that only imports us waits for no module of ours."""
    code = "import sys, ralph_wrap; print([name for name in sys.modules if name.startswith('ralph_wrap.')])"
    done = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("isolation", list(Isolation))
def test_nothing_of_ours_is_loaded_while_an_agent_works(tmp_path: Path, isolation: Isolation) -> None:
    """It could be of another version by then, and the work would be left to a mixture of both."""
    project = make_project(tmp_path).repo.path
    submodules = " ".join(("git", *ALLOWED, "submodule", "update", "--init"))
    work = ("sh", "-c", f"git init nested; {submodules}; echo new | tee new vendor/x/new")
    code = (
        "import sys; from pathlib import Path; from ralph_wrap import Session, Settings\n"
        "from ralph_wrap.config import Isolation\n"
        f"settings = Settings(Path({os.fspath(project)!r}), {work}, max_iterations=2)\n"
        "settings = settings._replace(commit_each=True)\n"
        f"with Session(settings._replace(isolation=Isolation({isolation.value!r}))) as session:\n"
        "    before = {*sys.modules}\n"
        "    session.run()\n"
        "    assert session.report is None\n"
        "assert session.report.iterations == 2\n"
        "print([name for name in sys.modules if name.startswith('ralph_wrap') and name not in before])"
    )
    done = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


def test_a_worktree_from_python(repo: Repo) -> None:
    """The example of a context and of an agent in it, as documented."""
    with ralph_wrap.Worktree("feature-auth", base="main", cleanup=True, project=repo.path) as tree:
        with ralph_wrap.Worktree("experiment", project=repo.path):
            inner = ralph_wrap.current_worktree()
            assert inner is not None
            assert inner.branch == "experiment"
        assert ralph_wrap.run_agent("", ("pwd",)).output == f"{tree.path}\n"
    assert ralph_wrap.current_worktree() is None
    paths = [info.path for info in ralph_wrap.list_worktrees(repo.path)]
    assert paths == [repo.path, repo.path / ".ralph/worktrees/experiment"]
