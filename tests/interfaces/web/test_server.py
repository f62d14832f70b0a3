"""The program: its address, its end, and what is missing."""

from __future__ import annotations

import json
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.interfaces.web.serving import serving, work_on
from tests.support.blocking_git import Gate
from tests.support.repo import Repo
from tests.support.sessions import command
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from pathlib import Path


def test_the_address(repo: Repo) -> None:
    """It is all that is printed, it works once opened, and only this machine can open it."""
    with serving(repo.path) as served:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", served.url)
        entry = served.ask("GET", served.url.partition(str(served.port))[2])
        cookie = entry.headers["set-cookie"].partition(";")[0]
        page = served.ask("GET", entry.headers["location"], Cookie=cookie)
        assert (entry.status, page.status) == (303, 200)
        assert "server" not in page.headers
        assert served.ask("GET", entry.headers["location"]).status == 403
        listening = psutil.Process(served.process.pid).net_connections("inet")
        assert {one.laddr for one in listening if one.status == "LISTEN"} == {("127.0.0.1", served.port)}
        served.process.terminate()
        assert served.process.wait(CAP) == -signal.SIGTERM
        assert served.process.stdout is not None
        assert served.process.stderr is not None
        assert (served.process.stdout.read(), served.process.stderr.read()) == (b"", b"")


def test_two_have_different_tokens(repo: Repo) -> None:
    """And the one of an earlier start is worth nothing."""
    with serving(repo.path) as one, serving(repo.path) as other:
        assert one.url.partition("token=")[2] != other.url.partition("token=")[2]
        assert other.ask("GET", one.url.partition(str(one.port))[2]).status == 403


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it(repo: Repo, number: signal.Signals) -> None:
    """By the signal itself, without a word, though a browser keeps its connection."""
    with serving(repo.path) as served, socket.create_connection(("127.0.0.1", served.port)) as browser:
        browser.sendall(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert browser.recv(12) == b"HTTP/1.1 403"
        served.process.send_signal(number)
        assert served.process.wait(CAP) == -number
        assert served.process.stderr is not None
        assert served.process.stderr.read() == b""


def test_signals_that_come_at_once(repo: Repo) -> None:
    """One that comes while another one is heeded, as when a terminal is closed, is no obstacle to it."""
    kinds = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    with serving(repo.path) as served:

        def ended() -> bool:
            for number in kinds * 200:
                served.process.send_signal(number)
            return served.process.poll() is not None

        eventually(ended, "the end of the server")
        assert -served.process.wait() in kinds


def test_a_landing_that_has_begun_is_brought_to_its_end(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal does not come between the branch and its checkout; the browser gets its answer first."""
    tip = work_on(repo, "ralph/a3f2", {"new.txt": "new\n"})
    with Gate(tmp_path / "gate", "read-tree") as gate:
        for name, value in gate.env.items():
            monkeypatch.setenv(name, value)
        with serving(repo.path) as served, ThreadPoolExecutor(1) as pool:
            entry = served.ask("GET", served.url.partition(str(served.port))[2])
            cookie = entry.headers["set-cookie"].partition(";")[0]
            origin = f"http://127.0.0.1:{served.port}"
            address = f"{entry.headers['location']}merge"
            answer = pool.submit(served.ask, "POST", address, b"name=a3f2", Cookie=cookie, Origin=origin)
            gate.wait()
            served.process.terminate()
            gate.open()
            assert answer.result(CAP).status == 303
            assert served.process.wait(CAP) == -signal.SIGTERM
    assert (repo.head, repo.git("status", "--porcelain", "--untracked-files=no")) == (tip, "")
    assert (repo.path / "new.txt").exists()


def test_a_port_that_is_taken(repo: Repo) -> None:
    """It is refused; a free one that is asked for is taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = command("web", "--port", str(port), cwd=repo.path)
    [error] = ended.narration
    assert (ended.status, error["code"]) == (6, "conflict")
    assert error["message"] == f"cannot listen on port {port} of 127.0.0.1: Address already in use"
    with serving(repo.path, "--port", str(port)) as served:
        assert served.port == port


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_ports_that_are_none(repo: Repo, port: str) -> None:
    """They are mistakes on the command line."""
    assert command("web", "--port", port, cwd=repo.path).status == 2


def test_outside_of_a_repository(tmp_path: Path) -> None:
    """There is nothing to show."""
    ended = command("web", cwd=tmp_path)
    assert (ended.status, ended.stdout) == (3, b"")


def test_only_the_page_loads_its_libraries(repo: Repo, tmp_path: Path) -> None:
    """A start and a review in the terminal do not wait for them."""
    shadow = tmp_path / "shadow"
    for name in ("starlette", "uvicorn", "jinja2", "markupsafe", "pygments"):
        (shadow / name).mkdir(parents=True)
        (shadow / name / "__init__.py").write_text(f"raise ModuleNotFoundError('No module named {name}')\n")
    environ = {"PYTHONPATH": str(shadow)}
    for arguments in (("run", "-n", "1", "--", "true"), ("ps",), ("review",), ("doctor",)):
        ended = command(*arguments, cwd=repo.path, env=environ)
        assert "No module named" not in ended.stderr, arguments
    for writing in (("web",), ("review", "--html", "x.html")):
        assert "No module named" in command(*writing, cwd=repo.path, env=environ).stderr, writing


def test_a_page_in_a_file(repo: Repo) -> None:
    """The branches with their differences, safe, and with nothing that is loaded from elsewhere."""
    repo.git("switch", "--quiet", "--create", "ralph/a3f2")
    repo.write("a.py", "def f(): return '</style><script>alert(1)</script>\u202e'\n")
    repo.commit("<b>subject</b>")
    repo.git("switch", "--quiet", "main")
    target = repo.path.parent / "page.html"
    target.write_text("old")
    before = repo.fingerprint()
    ended = command("review", "--html", target, cwd=repo.path)
    assert (ended.status, ended.stdout) == (0, b"")
    html = target.read_text()
    assert "return &#39;&lt;/style&gt;&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩&#39;" in re.sub(
        "<[^>]*>", "", html
    )
    assert "&lt;b&gt;subject&lt;/b&gt;" in html
    assert "<script" not in html
    assert "\u202e" not in html
    assert re.findall(r'(?:src|action|url)\s*[=(]|href="[^#]|@import', html) == []
    assert "default-src 'none'; style-src 'sha256-" in html
    assert sorted(path.name for path in target.parent.iterdir() if path.name.startswith(".page")) == []
    assert repo.fingerprint() == before
    listed = command("review", "--html", target, "--only", "conflicting", "--json", cwd=repo.path)
    assert json.loads(listed.stdout)["data"] == []
    assert "ralph/a3f2" not in target.read_text()


def test_a_file_that_cannot_be_written(repo: Repo) -> None:
    """It is said, and what is there stays."""
    ended = command("review", "--html", repo.path / "nowhere" / "page.html", cwd=repo.path)
    [error] = ended.narration
    assert ended.status == 125
    assert error["message"].startswith("cannot write ")
    assert error["message"].endswith("page.html: No such file or directory")
