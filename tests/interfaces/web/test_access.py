"""Which requests the server answers, and which it refuses."""

from __future__ import annotations

import pytest

from ralph_wrap.interfaces.web.actions import BUTTONS
from tests.interfaces.web.serving import TOKEN, Pages, pages
from tests.support.repo import Repo


@pytest.fixture
def site(repo: Repo) -> Pages:
    """Return the pages of a repository."""
    return pages(repo.path)


def test_the_address_is_exchanged_for_a_cookie(site: Pages) -> None:
    """The token leaves the address; its cookie is for a path that other servers of this host do not know."""
    answer = site.ask("GET", f"/?token={TOKEN}", {"host": "127.0.0.1:8000"})
    assert (answer.status, answer.headers["location"]) == (303, f"{site.root}/")
    assert answer.headers["set-cookie"] == (
        f"ralph-wrap={TOKEN}; HttpOnly; Path={site.root}/; SameSite=strict"
    )
    assert len(site.root) == 25
    assert TOKEN not in site.root


def test_a_request_with_the_cookie_is_answered(site: Pages) -> None:
    """The control of what is refused below: the same request with nothing wrong."""
    assert site.ask("GET", f"{site.root}/", site.known).status == 200
    assert site.post("stop", ("id", "0000")).status == 303


@pytest.mark.parametrize("before", ["a[b]=c", "a b=1", "=", 'a="b', "\x7f;;", "ralph-wrap=another"])
def test_a_cookie_of_another_server_locks_no_user_out(site: Pages, before: str) -> None:
    """Browsers send a cookie to every port of a host, and http.cookies gives up at a malformed one."""
    headers = site.known | {"cookie": f"{before}; {site.known['cookie']}"}
    assert site.ask("GET", f"{site.root}/", headers).status == 200


@pytest.mark.parametrize(
    "target", ["/", "/?token=", "/?token=wrong", f"/?token={TOKEN}x", "/?Token=x", "/favicon.ico", "/nowhere"]
)
def test_without_the_token_nothing_is_shown(site: Pages, target: str) -> None:
    """Whatever is asked for, and whether it is there or not."""
    answer = site.ask("GET", target, {"host": "127.0.0.1:8000"})
    assert answer.status == 403
    assert b"project" not in answer.body


@pytest.mark.parametrize("cookie", [None, "ralph-wrap=", "ralph-wrap=wrong", "other=1", "=;,\x7f"])
def test_without_the_cookie_no_page_is_shown(site: Pages, cookie: str | None) -> None:
    """Nor a file that every page has."""
    headers = {"host": "127.0.0.1:8000"} | ({"cookie": cookie} if cookie is not None else {})
    pages_of_ours = ("", "live", "branch?name=a", "static/app.css", "static/app.js")
    asked = [site.ask("GET", f"{site.root}/{page}", headers).status for page in pages_of_ours]
    assert asked == [403] * len(pages_of_ours)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "127.0.0.1:8000@evil.example", "localhost.", "[::1]", ""],
)
def test_another_name_of_this_host_is_refused(site: Pages, host: str) -> None:
    """A site whose name suddenly leads to the loopback (DNS rebinding) gets nothing, whatever it knows."""
    assert site.ask("GET", f"{site.root}/", {**site.known, "host": host}).status == 403
    assert site.ask("GET", f"/?token={TOKEN}", {"host": host}).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "127.0.0.1:65535"])
def test_a_tunnel_may_have_another_port(site: Pages, host: str) -> None:
    """The loopback of another machine, by ssh -L, is a loopback, too."""
    assert site.ask("GET", f"{site.root}/", {**site.known, "host": host}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "https://127.0.0.1:8000"},
        {"origin": "http://localhost:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-site"},
        {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    ],
    ids=str,
)
def test_another_sites_post_changes_nothing(site: Pages, headers: dict[str, str]) -> None:
    """Even with the cookie: a page of an agent's own server on this host is another site."""
    assert site.ask("POST", f"{site.root}/stop", {**site.known, **headers}, b"id=0000").status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:8000"},
        {"sec-fetch-site": "same-origin"},
        {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"},
    ],
    ids=str,
)
def test_our_own_pages_post(site: Pages, headers: dict[str, str]) -> None:
    """The control: what a browser says of our own pages."""
    assert site.ask("POST", f"{site.root}/stop", {**site.known, **headers}, b"id=0000").status == 303


@pytest.mark.parametrize("origin", ["cross-site", "same-site"])
def test_no_other_site_embeds_a_page(site: Pages, origin: str) -> None:
    """Neither as a picture nor as a script, from whose errors it could learn something."""
    assert site.ask("GET", f"{site.root}/", {**site.known, "sec-fetch-site": origin}).status == 403
    assert site.ask("GET", f"{site.root}/", {**site.known, "origin": "http://127.0.0.1:3000"}).status == 403


def test_a_get_changes_nothing(site: Pages) -> None:
    """Buttons are no addresses."""
    assert [site.get(f"{button}?id=0000&name=a").status for button in BUTTONS] == [405] * len(BUTTONS)


def test_read_only(repo: Repo) -> None:
    """No button is shown, and no request works, even from a client that knows the address."""
    site = pages(repo.path, read_only=True)
    assert [site.post(button, ("name", "a")).status for button in BUTTONS] == [403] * len(BUTTONS)
    assert site.get().status == 200
    assert 'method="post"' not in site.get().text


def test_other_methods_are_refused(site: Pages) -> None:
    """There is nothing for them."""
    headers = {**site.known, "origin": "http://127.0.0.1:8000"}
    methods = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
    assert [site.ask(method, f"{site.root}/", headers).status for method in methods] == [405] * len(methods)


@pytest.mark.parametrize(
    "target", ["/", "{root}/", "{root}/nowhere", "{root}/static/app.js", "{root}/branch"]
)
def test_every_answer_has_the_policy(site: Pages, target: str) -> None:
    """Refusals and mistakes, too: no script but ours runs, no page is framed, kept or guessed at."""
    answer = site.ask("GET", target.format(root=site.root), site.known)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"


def test_a_form_has_an_end(site: Pages) -> None:
    """A request that is larger than any form of ours is cut off."""
    headers = {**site.known, "origin": "http://127.0.0.1:8000"}
    assert site.ask("POST", f"{site.root}/stop", headers, b"id=" + b"a" * (1 << 16)).status == 413


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example", "?x\r\nset-cookie: a=b", "/etc", "../x"]
)
def test_a_button_leads_to_our_own_pages(site: Pages, back: str) -> None:
    """Whatever a form says."""
    location = site.post("stop", ("id", "0000"), ("back", back)).headers["location"]
    assert location.startswith(f"{site.root}/?note=")
