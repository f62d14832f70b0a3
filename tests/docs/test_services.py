"""The examples of a database and a dev server for each worktree, as they stand on their page."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.documents import DOCS, section
from tests.support.needs import Need, needs, program
from tests.support.processes import left
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

PAGE = DOCS / "services.md"
SH = ("-n", "1", "--", "sh", "-c")
NOBODY = 65534


def _programs() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))


POSTGRESQL = Need(
    lambda: "" if _programs() else "PostgreSQL is not installed: apt-get install postgresql",
    "REQUIRE_POSTGRESQL",
)


def configure(repo: Repo, heading: str) -> None:
    """Write the configuration below a heading of the page."""
    block = section(PAGE, heading).split("```toml\n", 1)[1].split("```", 1)[0]
    repo.write(".ralph/config.toml", block)


@pytest.fixture
def project(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return a project whose commands the user has approved."""
    monkeypatch.setenv("RALPH_TRUST", "1")
    repo.write(".gitignore", ".env\n.ralph/\nserver.log\n")
    repo.commit("a project")
    return repo


@pytest.fixture
def postgresql(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a PostgreSQL server of our own; the environment leads its programs there."""
    programs = _programs()[-1]
    as_user = (
        (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")  # it refuses to run as root
        if os.geteuid() == 0
        else ()
    )
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as directory:  # a short path
        if as_user:
            os.chown(directory, NOBODY, NOBODY)

        def typed(name: str, *words: str) -> None:
            line = ("setpriv", *as_user, programs / name, "-D", f"{directory}/data", *words)
            subprocess.run(line, check=True, cwd=directory, stdout=subprocess.DEVNULL, timeout=60)

        typed("initdb", "--auth=trust", "--username=tests", "--no-sync")
        options = f"-c listen_addresses='' -c fsync=off -k {directory}"
        typed("pg_ctl", "-o", options, "-l", f"{directory}/log", "-w", "start")
        for name, value in (("PGHOST", directory), ("PGUSER", "tests"), ("PGDATABASE", "postgres")):
            monkeypatch.setenv(name, value)
        try:
            yield
        finally:
            typed("pg_ctl", "-m", "immediate", "-w", "stop")


def ask(query: str) -> list[str]:
    """Return the answer of the server."""
    asked = subprocess.run(("psql", "-Atc", query), capture_output=True, text=True, check=True)
    return asked.stdout.split()


def databases() -> list[str]:
    """Return the databases of sessions."""
    return ask("select datname from pg_database where datname like 'app%' order by 1")


AGENT = """
. ./.env
psql -q "$DATABASE_URL" -c "create table t (x int)"
psql -At "$DATABASE_URL" -c "select current_database()"
"""
MEET = """
touch "$RALPH_PROJECT/../at-$RALPH_AGENT_ID"
until set -- "$RALPH_PROJECT"/../at-*; [ $# = 2 ]; do sleep 0.05; done
"""


@needs(POSTGRESQL)
@pytest.mark.usefixtures("postgresql")
def test_each_worktree_has_its_database(project: Repo) -> None:
    """Two sessions at once make the same table; afterwards no database is left."""
    configure(project, "A PostgreSQL database")
    meet = AGENT + MEET
    with Session(project.path, *SH, meet) as first, Session(project.path, *SH, meet) as second:
        results = [first.finish(), second.finish()]
    for result in results:
        assert result.status == 0, result.stderr
        assert result.stdout.decode().split() == [f"app_{result.report['id']}"]
        assert result.report["teardown"]["result"] == "passed"
    assert databases() == []


@needs(POSTGRESQL)
@pytest.mark.usefixtures("postgresql")
def test_a_sweep_drops_the_database_of_a_killed_session(project: Repo) -> None:
    """Whose server process still has a connection of its agent."""
    configure(project, "A PostgreSQL database")
    with Session(project.path, *SH, f"{AGENT}psql -q -c 'select pg_sleep(600)' \"$DATABASE_URL\"") as session:
        eventually(
            lambda: ask("select 1 from pg_stat_activity where wait_event = 'PgSleep'"), "the connection"
        )
        session.process.kill()
        session.process.wait()
    assert len(databases()) == 1
    assert command("sweep", cwd=project.path).status == 0
    assert databases() == []


@needs(POSTGRESQL)
@pytest.mark.usefixtures("postgresql")
def test_a_setup_that_fails_half_way_leaves_no_database(project: Repo) -> None:
    """The second command fails."""
    configure(project, "A PostgreSQL database")
    config = project.path / ".ralph/config.toml"
    config.write_text(config.read_text().replace("echo ", "psql -Atc 'select count(*) from none'; echo "))
    result = run(project.path, *SH, "true")
    assert (result.status, result.report["ended_by"]) == (125, "not-started")
    assert databases() == []


@needs(program("curl", "curl"))
def test_each_worktree_has_its_dev_server(project: Repo, home: Path) -> None:
    """It answers while the agent works, and ends with the session."""
    configure(project, "A dev server")
    project.write("hello", "hello\n")
    project.commit("hello")
    result = run(project.path, *SH, 'curl -s "http://127.0.0.1:$RALPH_PORT/hello"')
    assert (result.status, result.stdout) == (0, b"hello\n"), result.stderr
    assert (result.report["saved"], left(home)) == (None, {})
