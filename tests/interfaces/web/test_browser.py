"""The pages in a real browser: what runs there, and what does not."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.interfaces.web.serving import serving, work_on
from tests.interfaces.web.test_pages import EVIL
from tests.support.blocking_git import Gate
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Route

    from tests.support.repo import Repo

pytestmark = pytest.mark.browser

MINUS = "\N{MINUS SIGN}"


@contextmanager
def _watched(browser: BrowserContext) -> Iterator[Page]:
    """Yield a page, in which nothing may be said, asked, refused or loaded from elsewhere."""
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: asked.add(request.url.split("/")[2]))
    asked: set[str] = set()
    yield page
    assert said == []
    assert len(asked) == 1


def test_from_the_address_to_a_merge_by_the_keyboard(repo: Repo, browser: BrowserContext) -> None:
    """Every step without a mouse: select a branch in the table, merge it, see that it has landed."""
    work_on(repo, "ralph/a3f2", {"new.py": "def f(): pass\n"})
    with serving(repo.path) as served, _watched(browser) as page:
        page.goto(served.url)
        assert "token" not in page.url
        page.get_by_label("Select ralph/a3f2").wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        passed = []
        while page.evaluate("document.activeElement.type") != "checkbox":
            page.keyboard.press("Tab")
            passed.append(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
        assert set(passed) == {"solid"}
        page.keyboard.press("Space")
        while page.evaluate("document.activeElement.textContent") != "Merge into main":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="ralph/a3f2 has landed on main")).to_be_visible()
        expect(page.get_by_role("row", name="ralph/a3f2")).to_contain_text("merged")
    assert (repo.path / "new.py").exists()


def test_everything_has_a_name(repo: Repo, browser: BrowserContext) -> None:
    """For users of a screen reader: each control, region and picture says what it is."""
    work_on(repo, "ralph/aaaa", {"file.txt": "a\n"})
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    nameless = """() => [...document.querySelectorAll(
        'a, button, input:not([type=hidden]), select, [role=region], [role=img], svg:not([aria-hidden])')]
        .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
        .map(e => e.outerHTML)"""
    with serving(repo.path) as served, _watched(browser) as page:
        page.goto(served.url)
        page.get_by_role("img", name="Conflicts between branches").wait_for()
        for address in ("", "branch?name=aaaa"):
            page.goto(page.url.split("?")[0].rstrip("/").rsplit("/branch", 1)[0] + "/" + address)
            assert page.evaluate(nameless) == []
            assert page.locator("h1").count() == 1
            assert page.evaluate("document.documentElement.lang") == "en"


def test_nothing_hostile_runs(repo: Repo, browser: BrowserContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever agents have written: no dialog, no request, no attempt that the policy has to stop."""
    name = "ralph/<img-src=x-onerror=alert(1)>"
    monkeypatch.setenv("GIT_AUTHOR_NAME", EVIL)
    script = "<script>alert(1)</script>\n" + EVIL
    files: dict[str, str | bytes] = {"<script>alert(1)<script>.html": script, "a.svg": script}
    commit = work_on(repo, name, files, script)
    with serving(repo.path) as served, _watched(browser) as page:
        page.goto(served.url)
        root = page.url
        for address in ("", f"branch?name={quote(name)}", f"commit?id={commit}", f"?find={quote(script)}"):
            page.goto(root + address)
            page.locator("main").wait_for()


def test_the_policy_would_stop_a_script(repo: Repo, browser: BrowserContext) -> None:
    """The control of the test above: were one let through by mistake, it would not run."""
    with serving(repo.path) as served:
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(served.url)
        page.evaluate("""() => { document.body.insertAdjacentHTML('beforeend',
            '<img src=x onerror="document.title=`run`"><iframe srcdoc="x"></iframe>');
            const made = document.createElement('script'); made.textContent = 'document.title="run"';
            document.body.append(made); }""")
        page.wait_for_timeout(100)
        assert "run" not in page.title()
        assert any("Content Security Policy" in message for message in said)


class _Attacker(BaseHTTPRequestHandler):
    """Another server on this host, as an agent can start one, and that knows more than it can know."""

    page = b""
    cookies: list[str | None] = []  # noqa: RUF012 -- one list for all requests, on purpose

    def do_GET(self) -> None:
        """Answer with the page, whatever is asked for."""
        self.cookies.append(self.headers["cookie"])
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_another_server_on_this_host_can_do_nothing(repo: Repo, browser: BrowserContext) -> None:
    """It does not get the cookie; and if it knew every address, its forms and frames would be refused."""
    work_on(repo, "ralph/a3f2", {"new.txt": "new\n"})
    before = repo.git("for-each-ref")
    with serving(repo.path) as served, HTTPServer(("127.0.0.1", 0), _Attacker) as attacker:
        thread = threading.Thread(target=attacker.serve_forever, daemon=True)
        thread.start()
        try:
            page = browser.new_page()
            page.goto(served.url)
            root = page.url
            _Attacker.page = (
                f'<form method="post" action="{root}drop"><input name="name" value="a3f2">'
                f'<input name="force" value="1"></form><iframe src="{root}"></iframe>'
            ).encode()
            page.goto(f"http://127.0.0.1:{attacker.server_port}/")
            framed = page.frames[1]
            assert "ralph/a3f2" not in framed.content()
            with page.expect_navigation() as answered:
                page.evaluate("document.forms[0].submit()")
            answer = answered.value
            assert answer is not None
            assert (answer.url, answer.status) == (f"{root}drop", 403)
        finally:
            attacker.shutdown()
            thread.join()
    assert set(_Attacker.cookies) == {None}
    assert repo.git("for-each-ref") == before


def test_output_comes_by_itself(repo: Repo, browser: BrowserContext, script: Callable[[str], str]) -> None:
    """Without a new page, and without taking the focus away; so does the end of the session."""
    agent = script(
        "echo one; while [ ! -e ../../../go ]; do sleep 0.01; done\n"
        "echo two; while [ ! -e ../../../end ]; do sleep 0.01; done"
    )
    with Session(repo.path, "-n", "1", "--", agent) as session, serving(repo.path) as served:
        session.wait_for("agent.started")
        with _watched(browser) as page:
            page.goto(served.url)
            page.evaluate("window.same = true")
            expect(page.locator("pre.output")).to_have_text("one")
            page.get_by_role("button", name="Stop", exact=True).focus()
            repo.write("go")
            expect(page.locator("pre.output")).to_have_text("one\ntwo")
            assert page.evaluate("document.activeElement.textContent") == "Stop"
            repo.write("end")
            expect(page.locator("#live")).to_have_text("No session is running.")
            assert page.evaluate("window.same") is True
        session.finish()


def test_big_files_are_loaded_when_they_are_opened(repo: Repo, browser: BrowserContext) -> None:
    """And in parts; the page itself stays small."""
    work_on(repo, "ralph/a3f2", {"big.py": "".join(f"line_{n} = {n}\n" for n in range(1500))})
    with serving(repo.path) as served, _watched(browser) as page:
        page.goto(served.url)
        page.goto(f"{page.url}branch?name=a3f2")
        assert page.locator(".diff").count() == 0
        page.locator("summary").press("Enter")
        expect(page.locator(".diff tbody tr")).to_have_count(600)
        page.get_by_role("link", name="More of this file").press("Enter")
        expect(page.locator(".diff tbody tr")).to_have_count(1200)
        page.get_by_role("link", name="More of this file").press("Enter")
        expect(page.locator(".diff tbody tr")).to_have_count(1501)
        assert page.get_by_role("link", name="More of this file").count() == 0
        assert page.get_by_text("line_1499").count() == 1


def test_without_javascript(repo: Repo, scriptless: BrowserContext) -> None:
    """Every page and button works all the same."""
    work_on(repo, "ralph/a3f2", {"big.py": "".join(f"line_{n} = {n}\n" for n in range(1500))})
    with serving(repo.path) as served, _watched(scriptless) as page:
        page.goto(served.url)
        page.get_by_role("link", name="ralph/a3f2").click()
        page.locator("summary").click()
        page.get_by_role("link", name="show them").click()
        page.get_by_role("link", name="More of this file").click()
        expect(page.locator(".diff tbody tr")).to_have_count(600)
        page.go_back()
        page.go_back()
        page.get_by_role("button", name="Drop").click()
        expect(page.get_by_role("status").filter(has_text="ralph/a3f2 kept")).to_be_visible()
        page.get_by_role("button", name="Drop it anyway").click()
        expect(page.get_by_role("status").filter(has_text="ralph/a3f2 dropped")).to_be_visible()
    assert repo.branches() == ["main"]


def test_a_narrow_window(repo: Repo, browser: BrowserContext) -> None:
    """Nothing but tables and pictures, each in a frame of its own, is wider than the window."""
    work_on(
        repo, "ralph/aaaa", {"file.txt": "a" * 500 + "\n", f"{'d' * 100}/{'e' * 100}.txt": "x\n"}, "w" * 300
    )
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    with serving(repo.path) as served, _watched(browser) as page:
        page.set_viewport_size({"width": 360, "height": 700})
        page.goto(served.url)
        root = page.url
        page.get_by_role("img", name="Conflicts between branches").wait_for()
        for address in ("", "branch?name=aaaa"):
            page.goto(root + address)
            assert page.evaluate("document.documentElement.scrollWidth") == 360, address


def test_a_difference_on_a_phone_is_unified(repo: Repo, browser: BrowserContext) -> None:
    """Deleted lines come first, then the added ones, each with its sign."""
    repo.write("file.txt", "same\none\ntwo\nend\n")
    repo.commit()
    work_on(repo, "ralph/a3f2", {"file.txt": "same\n1\n2\n3\nend\n"})
    lines = """() => [...document.querySelectorAll('.diff td:not(.number, [colspan])')]
        .filter(cell => cell.getClientRects().length)
        .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
        .map(cell => getComputedStyle(cell, '::before').content.slice(1, -1) + cell.textContent)"""
    with serving(repo.path) as served, _watched(browser) as page:
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(served.url)
        page.goto(f"{page.url}branch?name=a3f2")
        page.locator(".diff").wait_for()
        assert page.evaluate(lines) == [" same", f"{MINUS}one", f"{MINUS}two", "+1", "+2", "+3", " end"]
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_list_on_a_phone_shows_what_decides(repo: Repo, browser: BrowserContext) -> None:
    """State and conflicts of each branch, and the buttons, however many rows there are."""
    for number in range(40):
        work_on(repo, f"ralph/{number:04x}", {"file.txt": f"{number}\n"})
    seen = """() => [...document.querySelectorAll('.branches tbody tr')].every(row =>
        [row.cells[0], row.cells[1], row.cells[3], row.cells[4]].every(cell => {
            const box = cell.getBoundingClientRect();
            return box.width > 0 && box.left >= 0 && box.right <= innerWidth; }))"""
    with serving(repo.path) as served, _watched(browser) as page:
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(served.url)
        page.get_by_label("Select ralph/0000").wait_for()
        assert page.evaluate(seen)
        page.get_by_label("Select ralph/0027").scroll_into_view_if_needed()
        page.get_by_label("Select ralph/0010").scroll_into_view_if_needed()
        button = page.get_by_role("button", name="Merge into main").bounding_box()
        assert button is not None
        assert 0 <= button["y"] <= 800 - button["height"]
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_label("Select ralph/0010").scroll_into_view_if_needed()
        button = page.get_by_role("button", name="Merge into main").bounding_box()
        assert button is not None
        assert 0 <= button["y"] <= 800 - button["height"]


def test_every_column_is_in_view_or_named(repo: Repo, browser: BrowserContext) -> None:
    """At 1280 pixels all of them, however long names are; a narrower page names the others."""
    repo.write("agent.sh", '#!/bin/sh\neval "$(cat)"\n', executable=True)
    repo.commit("An agent")
    for word, name in (("short", "a.txt"), ("long " * 20 + "w" * 60, "b" * 60)):
        prompt = (
            f"echo {word} > {name[:20]}; echo x > same; git add .; git commit -qm '{word}'; echo x > left"
        )
        options = ("--branch", f"work-of-{name}", "--name", word, "-n", "1", "-p", prompt)
        assert run(repo.path, *options, "--", "./agent.sh", "an argument").status == 0
    with serving(repo.path) as served, _watched(browser) as page:
        page.goto(served.url)
        page.get_by_label("Select work-of-a.txt").wait_for()
        for width in (1600, 1280, 1180, 1000, 900, 390):
            page.set_viewport_size({"width": width, "height": 800})
            outside, unseen, cut = page.evaluate(_COLUMNS)
            said = (
                page.locator(".hidden-columns").text_content()
                if page.locator(".hidden-columns").is_visible()
                else ""
            )
            assert outside == [], width
            assert cut == [], width
            assert [name for name in unseen if name not in (said or "")] == [], width
            assert width < 1280 or unseen == []


_COLUMNS = """() => {
    const head = [...document.querySelectorAll('.branches thead th')].map(cell => cell.textContent.trim());
    const outside = [], unseen = new Set(), cut = [];
    for (const row of document.querySelectorAll('.branches tbody tr'))
        [...row.cells].forEach((cell, column) => {
            const box = cell.getBoundingClientRect();
            if (!box.width && cell.textContent) unseen.add(head[column]);
            if (box.right > innerWidth || box.left < 0) outside.push(head[column]);
            if (cell.scrollWidth > cell.clientWidth + 1) cut.push(head[column]);
        });
    return [outside, [...unseen], cut];
}"""
"""The columns with a cell outside the window, without a place, and with text that is cut."""


def test_a_new_comparison_keeps_what_was_selected(repo: Repo, browser: BrowserContext) -> None:
    """Ticks, choices and the focus stay while the rows are replaced."""
    work_on(repo, "ralph/aaaa", {"a": "a\n"})
    work_on(repo, "ralph/bbbb", {"b": "b\n"})
    stale = True

    def answer(route: Route) -> None:
        response = route.fetch()
        html = response.text()
        if stale:
            html = html.replace('<div id="compared">', '<div id="compared" data-stale="yes">')
        route.fulfill(response=response, body=html)

    with serving(repo.path) as served, _watched(browser) as page:
        page.goto(served.url)
        page.get_by_label("Select ralph/aaaa").wait_for()
        page.route(page.url, answer)
        page.reload()
        page.locator("#compared[data-stale]").wait_for()
        page.evaluate("window.same = true")
        page.get_by_label("Method").select_option("squash")
        page.get_by_label("Select ralph/bbbb").check()
        page.evaluate("document.querySelector('tbody tr').id = 'old'")
        stale = False
        expect(page.locator("#old")).to_have_count(0)
        assert page.evaluate("window.same") is True
        expect(page.get_by_label("Select ralph/bbbb")).to_be_checked()
        expect(page.get_by_label("Select ralph/bbbb")).to_be_focused()
        expect(page.get_by_label("Select ralph/aaaa")).not_to_be_checked()
        expect(page.get_by_label("Method")).to_have_value("squash")


def test_rows_come_by_themselves(
    repo: Repo, browser: BrowserContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first ones, without a new page: the button of a session keeps the focus."""
    work_on(repo, "ralph/aaaa", {"file.txt": "a\n"})
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    with (
        Session(repo.path, "-n", "1", "--", "sleep", "1000") as session,
        Gate(tmp_path / "gate", "merge-tree") as gate,
    ):
        session.wait_for("agent.started")
        for name, value in gate.env.items():
            monkeypatch.setenv(name, value)
        with serving(repo.path) as served, _watched(browser) as page:
            gate.wait()
            page.goto(served.url)
            page.evaluate("window.same = true")
            page.get_by_role("button", name="Stop", exact=True).focus()
            with page.expect_response(page.url) as again:
                expect(page.get_by_role("status").filter(has_text="being compared")).to_be_visible()
            assert again.value.ok
            gate.open()
            page.get_by_label("Select ralph/aaaa").wait_for()
            expect(page.get_by_role("button", name="Stop", exact=True)).to_be_focused()
            assert page.evaluate("window.same") is True


def test_a_reason_why_no_rows_come_is_shown(repo: Repo, browser: BrowserContext) -> None:
    """As the page would show it that is opened again."""
    with serving(repo.path) as served:
        page = browser.new_page()
        page.goto(served.url)
        refused = False

        def answer(route: Route) -> None:
            if refused:
                route.fulfill(status=500, body="The branches cannot be read.")
            else:
                html = route.fetch().text()
                html = html.replace('<div id="compared">', '<div id="compared" data-stale="empty">')
                route.fulfill(body=html, content_type="text/html")

        page.route(page.url, answer)
        page.reload()
        page.locator("#compared[data-stale]").wait_for()
        refused = True
        expect(page.locator("body")).to_have_text("The branches cannot be read.")


def test_a_file_of_its_own(repo: Repo, browser: BrowserContext) -> None:
    """The page of ``review --html`` is shown whole from a disk, with its style, and asks for nothing else."""
    work_on(repo, "ralph/aaaa", {"file.txt": "a\n"})
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    target = repo.path.parent / "page.html"
    assert command("review", "--html", target, cwd=repo.path).status == 0
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(target.as_uri())
    assert page.locator(".matrix .conflict").count() == 2
    assert page.locator(".diff tbody tr:not(.hunk)").count() == 2
    assert page.evaluate("getComputedStyle(document.querySelector('.diff')).tableLayout") == "fixed"
    assert (said, asked) == ([], [target.as_uri()])
