"""What stands on the pages."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.interfaces.web.serving import Pages, compared, pages, words, work_on
from tests.support.agent_script import TRUSTED, result_line
from tests.support.repo import Repo
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_project_without_anything(repo: Repo) -> None:
    """It says what there is not."""
    text = words(compared(pages(repo.path)).text)
    assert "No session is running." in text
    assert "No session has a branch yet." in text


def test_the_table_has_what_review_has(repo: Repo, script: Callable[[str], str]) -> None:
    """One row for a branch, with the way to its page, session and saved work."""
    agent = script("echo two >> file.txt; git commit -qam second; echo three >> file.txt; echo seen")
    result = run(repo.path, "-n", "1", "--name", "Login <page>", "--", agent)
    agent_id = result.report["id"]
    html = compared(pages(repo.path)).text
    [row] = re.findall(r"<tr>\n<td><input.*?</tr>", html, re.DOTALL)
    assert re.sub(r"\d+ s ago", "now", words(row)) == (
        f"Login &lt;page&gt; second ralph/{agent_id} can be merged"
        f" limit reached now {agent} 1 0 1 file +1 -0 saved"
    )
    for page in (
        f"branch?name=ralph%2F{agent_id}",
        f"session?id={agent_id}",
        f"saved?name=ralph%2F{agent_id}",
    ):
        assert f'/{page}"' in row
        assert pages(repo.path).get(page).status == 200


def test_a_branch(repo: Repo) -> None:
    """Its commits and, side by side, what it changes since it left the main branch."""
    commit = work_on(repo, "ralph/a3f2", {"new.py": "def f(): pass\n", "file.txt": "two\n"}, "do it")
    repo.write("other.txt", "later\n")
    repo.commit("main goes on")
    html = pages(repo.path).get("branch?name=a3f2").text
    text = words(html)
    assert f"{commit[:10]} do it" in text
    assert "2 files, +2 -1" in text
    assert "1 one 1 two" in text
    assert "other.txt" not in text
    assert '<td class="del">one</td>' in html
    assert '<i class="k">def</i>' in html


def test_a_commit(repo: Repo) -> None:
    """Its whole message, and what it changes."""
    commit = work_on(repo, "ralph/a3f2", {"file.txt": "two\n"}, "subject\n\nbody <b>")
    html = pages(repo.path).get(f"commit?id={commit}&name=ralph/a3f2").text
    assert "body &lt;b&gt;</pre>" in html
    assert "1 one 1 two" in words(html)


def test_two_branches_against_each_other(repo: Repo) -> None:
    """What leads from one agent's answer to the other's."""
    work_on(repo, "ralph/aaaa", {"file.txt": "a\n"})
    work_on(repo, "ralph/bbbb", {"file.txt": "b\n"})
    site = pages(repo.path)
    assert '/against?name=ralph%2Faaaa&amp;other=bbbb"' in _compared_branch(site, "aaaa")
    assert "1 a 1 b" in words(site.get("against?name=aaaa&other=bbbb").text)


def _compared_branch(site: Pages, name: str) -> str:
    compared(site)
    return site.get(f"branch?name={name}").text


def test_one_iteration(repo: Repo, script: Callable[[str], str]) -> None:
    """The same as ``ralph-wrap diff --iteration``; an unknown iteration is an error."""
    agent = script('echo "in $RALPH_ITERATION" > "new-$RALPH_ITERATION.txt"')
    agent_id = run(repo.path, "-n", "2", "--", agent).report["id"]
    site = pages(repo.path)
    assert f'/against?name=ralph%2F{agent_id}&amp;iteration=2"' in site.get(f"session?id={agent_id}").text
    assert f"{agent_id} , iteration 2 All changes of this iteration" in words(
        site.get(f"against?name={agent_id}&iteration=2").text
    )
    assert site.get(f"against?name={agent_id}&iteration=3").status == 404


def test_saved_work(repo: Repo, script: Callable[[str], str]) -> None:
    """What was not committed, and nothing else."""
    agent = script("echo two >> file.txt; git commit -qam second; echo three > left.txt")
    agent_id = run(repo.path, "-n", "1", "--", agent).report["id"]
    text = words(pages(repo.path).get(f"saved?name=ralph%2F{agent_id}").text)
    assert "1 file, +1 -0" in text
    assert "added left.txt" in text
    assert "two" not in text


def test_a_sessions_story(repo: Repo, script: Callable[[str], str]) -> None:
    """Iterations, their status, commits, the report's numbers, and the end of the output."""
    agent = script(
        'echo "did $RALPH_ITERATION"; git commit -q --allow-empty -m "step $RALPH_ITERATION"; exit 3'
    )
    result = run(repo.path, "-n", "2", "--max-failures", "0", "--delay", "0s", "--", agent)
    text = words(pages(repo.path).get(f"session?id={result.report['id']}").text)
    assert "Ended by max-iterations Exit status 3 Iterations 2 Commits 2" in text
    assert "did 1 did 2" in text
    assert text.index("step 1") < text.index("step 2") < text.index("session ended: ")


def test_costs_are_rounded(repo: Repo, script: Callable[[str], str]) -> None:
    """To cents, as in the terminal: of the session, of each iteration, and in the events."""
    agent = script(result_line("done", total_cost_usd=0.1234567))
    repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{agent}"]\noutput = "claude"\n')
    result = run(repo.path, "-n", "2", "--agent", "mine", "-p", "do it", env=TRUSTED)
    text = words(pages(repo.path).get(f"session?id={result.report['id']}").text)
    assert "Cost $0.25" in text
    assert text.count("$0.12") == 4
    assert "0.123" not in text


def test_events_are_in_words(repo: Repo, script: Callable[[str], str]) -> None:
    """No name of an event, no key, no whole object id stands in the timeline of a session."""
    agent = script('echo "$RALPH_ITERATION" > left.txt; git commit -q --allow-empty -m step')
    result = run(repo.path, "-n", "2", "--delay", "0s", "--", agent)
    text = words(pages(repo.path).get(f"session?id={result.report['id']}").text).partition("Timeline")[2]
    for sentence in (
        "the session began",
        f"its worktree was made, on ralph/{result.report['id']} from {repo.head[:12]}",
        "iteration 2 began",
        "the agent ended with status 0",
        "the result of iteration 1 is kept, at ",
        f"uncommitted work is saved on ralph/{result.report['id']}-wip: left.txt",
    ):
        assert sentence in text
    assert not re.search(r"[0-9a-f]{40}|\b[a-z]+_[a-z]+\b", text)
    assert not [event["event"] for event in result.events if f" {event['event']} " in text]


def test_times_have_their_zone(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """Wherever a page shows a time of day; the zone is UTC, also of a commit of another zone."""
    agent = script("GIT_COMMITTER_DATE=2026-01-02T03:04:05+09:00 git commit -q --allow-empty -m step")
    agent_id = run(repo.path, "-n", "1", "--", agent).report["id"]
    repo.git("branch", "--quiet", "ralph/aaaa", f"ralph/{agent_id}")
    assert command("review", "--html", tmp_path / "page.html", cwd=repo.path).status == 0
    report = words((tmp_path / "page.html").read_text())
    assert "2026-01-01 18:04 UTC" in report
    for text in (report, words(pages(repo.path).get(f"session?id={agent_id}").text)):
        times = re.findall(r"\b\d\d:\d\d(?::\d\d)?\b( UTC)?", text)
        assert times
        assert "" not in times


def test_the_commits_of_iterations_add_up(repo: Repo, script: Callable[[str], str]) -> None:
    """To those of the session, however fast the iterations are and whatever times the agent writes."""
    agent = script(
        'for n in $(seq $((RALPH_ITERATION % 3))); do git commit -q --allow-empty -m "$n"; done\n'
        '[ "$RALPH_ITERATION" != 4 ] || export GIT_COMMITTER_DATE=2001-01-01T00:00:00Z\n'
        '[ "$RALPH_ITERATION" != 4 ] || git commit -q --allow-empty -m old'
    )
    result = run(repo.path, "-n", "5", "--delay", "0s", "--", agent)
    text = words(pages(repo.path).get(f"session?id={result.report['id']}").text)
    assert result.report["commits"] == 7
    assert sum(map(int, re.findall(r"commits (\d+)", text.partition("Output")[0]))) == 7
    assert text.count("commits 2") == 3


def test_the_title_comes_first(repo: Repo) -> None:
    """On the page of a branch, on that of its session, and in the search."""
    result = run(repo.path, "-n", "1", "--name", "Login <page>", "--", "true")
    site = pages(repo.path)
    for page in (f"branch?name={result.report['id']}", f"session?id={result.report['id']}"):
        html = site.get(page).text
        assert "<h1>Login &lt;page&gt; <small>" in html
        assert "<title>Login &lt;page&gt; · ralph-wrap</title>" in html
    compared(site)
    assert "Login &lt;page&gt;" in site.get("?find=LOGIN&sort=title").text
    assert "No branch matches." in site.get("?find=logout").text


def test_a_read_only_page_has_no_form_that_changes_something(repo: Repo) -> None:
    """Neither around the table, nor on another page."""
    agent_id = run(repo.path, "-n", "1", "--", "sh", "-c", "echo x > x").report["id"]
    site = pages(repo.path, read_only=True)
    compared(site)
    for page in ("", f"branch?name={agent_id}", f"session?id={agent_id}", f"saved?name={agent_id}"):
        html = site.get(page).text
        assert 'method="post"' not in html
        assert 'type="checkbox"' not in html
    assert 'method="post"' in compared(pages(repo.path)).text


def test_a_live_session(repo: Repo, script: Callable[[str], str]) -> None:
    """Its output as far as it has come; then its end, without a new server."""
    agent = script(
        "printf '\\033[31mworking\\033[0m <b>\\n'; echo $RALPH_PORT > ../../../port;"
        " while [ ! -e ../../../go ]; do sleep 0.01; done"
    )
    site = pages(repo.path)
    with Session(repo.path, "-n", "1", "--", agent) as session:
        session.wait_for("agent.started")
        eventually(lambda: "working" in site.get("live").text, "the output")
        html = site.get("live").text
        assert "working &lt;b&gt;</pre>" in html
        assert '<span class="tag live">running</span>' in html
        port = f"port {(repo.path / 'port').read_text().strip()}"
        assert f" \u00b7 {port} \u00b7 " in html
        assert f"<span>{port}</span>" in site.get(f"session?id={session.directory.name}").text
        assert 'value="after-iteration"' in html
        repo.write("go")
        session.finish()
    assert words(site.get("live").text) == "No session is running."


def test_an_agents_stream_in_words(repo: Repo, script: Callable[[str], str]) -> None:
    """What a person saw, not what a program reads; from the middle of a line on, too."""
    said = '{"type": "assistant", "message": {"content": [{"type": "text", "text": "I <b>did</b> it"}]}}'
    agent = script(f"yes '{{\"type\": \"system\"}}' | head -n 5000; echo '{said}'")
    repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{agent}"]\noutput = "claude"\n')
    env = {"RALPH_TRUST": "1"}
    result = run(repo.path, "-n", "1", "--agent", "mine", "-p", "do it", env=env)
    html = pages(repo.path).get(f"session?id={result.report['id']}").text
    assert ">I &lt;b&gt;did&lt;/b&gt; it</pre>" in html


# Hostile


EVIL = '<img src=x onerror="alert(1)">&amp;{{7777*7777}}\u202e'


def _is_safe(html: str) -> bool:
    """Return whether nothing of EVIL is in a page but as text."""
    return "<img" not in html and 'onerror="' not in html and "\u202e" not in html and "60481729" not in html


def test_hostile_names_and_contents(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of branches, files, authors; in subjects, contents: all of it is text, whatever page it is on."""
    name = "ralph/<img-src=x>\"'&\u202eevil"
    monkeypatch.setenv("GIT_AUTHOR_NAME", EVIL)
    commit = work_on(
        repo, name, {f"{EVIL.replace('/', '')}.py": f"{EVIL}\x1b[31m\0\n" * 3, "b.py": EVIL}, EVIL
    )
    site = pages(repo.path)
    first = compared(site).text
    branch = site.get(f"branch?name={quote(name)}")
    part = re.findall(r'data-part="[^"]*/(part\?[^"]*)"', branch.text)
    for html in (
        first,
        branch.text,
        site.get(f"commit?id={commit}").text,
        site.get(f"branch?name={quote(EVIL)}").text,
        site.get(f"?find={quote(EVIL)}&sort={quote(EVIL)}&only={quote(EVIL)}").text,
        *(site.get(address.replace("&amp;", "&")).text for address in part),
    ):
        assert _is_safe(html), html
        assert "U+202E" in html
    assert branch.status == 200


def test_names_that_are_no_utf_8(repo: Repo) -> None:
    """Bytes of any value come back in addresses as they were."""
    raw = b"caf\xe9-\xff.txt"
    base = repo.head
    repo.write(raw.decode("utf-8", "surrogateescape"), b"\xe9\xff\n")
    tip = repo.commit()
    repo.git("reset", "--quiet", "--hard", base)
    name = b"ralph/caf\xe9".decode("utf-8", "surrogateescape")
    repo.git("update-ref", f"refs/heads/{name}", tip)
    site = pages(repo.path)
    [address] = set(re.findall(r'href="[^"]*/(branch\?name=ralph[^"]*)"', compared(site).text))
    assert address == "branch?name=ralph%2Fcaf%E9"
    text = words(site.get(address).text)
    assert "ralph/caf⟨E9⟩" in text
    assert "added caf ⟨E9⟩ - ⟨FF⟩ .txt" in text
    whole = site.get(f"file?old={base}&new={tip}&path=caf%E9-%FF.txt")
    assert whole.status == 200


def test_files_that_an_agent_has_replaced(repo: Repo, script: Callable[[str], str]) -> None:
    """Events, report and output may be anything by now: what can be read is shown."""
    result = run(repo.path, "-n", "1", "--", script("true"))
    assert result.directory is not None
    events = [
        [1],
        None,
        {"at": 5, "event": EVIL},
        {"at": "2026-01-02T03:04:05Z", "event": EVIL, "level": EVIL, "message": EVIL, "hint": EVIL},
        {"at": "2026-01-02T03:04:05Z", "event": "iteration.started", "iteration": 1e400},
        {"at": "2026-01-02T03:04:05Z", "event": "iteration.started", "iteration": True},
        {
            "at": "2026-01-02T03:04:06Z",
            "event": "iteration.ended",
            "iteration": 1,
            "status": EVIL,
            "cut": EVIL,
        },
        {"at": "0001-01-01T00:00:00+14:00", "event": {"a": "b"}, "x": [[[]]]},
    ]
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    (result.directory / "events.jsonl").write_text(lines + '{"at": "torn')
    (result.directory / "output.log").write_bytes(EVIL.encode() + b"\xff\0\x1b[2J\n")
    report = result.report | {"ended_by": EVIL, "cost_usd": [EVIL], "tokens": {"a": EVIL}, "saved": EVIL}
    (result.directory / "report.json").write_text(json.dumps(report))
    site = pages(repo.path)
    answer = site.get(f"session?id={result.report['id']}")
    assert (answer.status, _is_safe(answer.text)) == (200, True)
    assert _is_safe(compared(site).text)


@pytest.mark.parametrize("name", ["", "*", "ralph", "../heads/main", "main\n", "-x", EVIL])
def test_a_record_that_names_no_branch(repo: Repo, script: Callable[[str], str], name: str) -> None:
    """No other branch is taken for it."""
    base = repo.head
    work_on(repo, "ralph/cccc", {"file.txt": "x\n"}, "of another one")
    result = run(repo.path, "-n", "1", "--", script("true"))
    assert result.directory is not None
    record = result.directory / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"branch": name, "base": base}))
    answer = pages(repo.path).get(f"session?id={result.report['id']}")
    assert (answer.status, _is_safe(answer.text)) == (200, True)
    assert "of another one" not in answer.text


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "nothing"])
def test_a_file_that_is_no_log_is_not_read(repo: Repo, script: Callable[[str], str], kind: str) -> None:
    """Neither followed out of the project nor waited for."""
    result = run(repo.path, "-n", "1", "--", script("true"))
    assert result.directory is not None
    secret = repo.path.parent / "secret"
    secret.write_text("secret\n")
    for name in ("output.log", "events.jsonl"):
        path = result.directory / name
        path.unlink()
        if kind == "link":
            path.symlink_to(secret)
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
    answer = pages(repo.path).get(f"session?id={result.report['id']}")
    assert answer.status == 200
    assert "secret" not in answer.text
    assert "No output." in answer.text


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("branch", 404),
        ("branch?name=nowhere", 404),
        ("branch?name=main", 404),
        ("saved?name=a3f2", 404),
        ("commit", 400),
        ("commit?id=HEAD", 400),
        ("commit?id=--output=x", 400),
        (f"commit?id={'0' * 40}", 404),
        ("session?id=../../etc", 404),
        ("session?id=0000", 404),
        ("file", 400),
        (f"file?old={'0' * 40}&new={'0' * 40}&path=x", 404),
        (f"file?old={'0' * 40}&new={'0' * 40}&path=", 400),
        ("nowhere", 404),
        ("static/../app.py", 404),
        ("static/..%2fapp.py", 404),
    ],
)
def test_addresses_that_lead_nowhere(repo: Repo, page: str, status: int) -> None:
    """A status that says so, and a page with the reason."""
    work_on(repo, "ralph/a3f2", {"file.txt": "two\n"})
    assert pages(repo.path).get(page).status == status
    assert not (repo.path / "x").exists()


def test_branches_without_a_main_branch(repo: Repo) -> None:
    """They are shown, against what they began at, or as a whole."""
    repo.git("switch", "--quiet", "--create", "ralph/a3f2")
    repo.write("new.txt", "new\n")
    repo.commit()
    repo.git("branch", "--quiet", "-D", "main")
    site = pages(repo.path)
    html = compared(site).text
    assert "there is no main branch" in html
    assert "+2 -0" in words(site.get("branch?name=a3f2").text)


def test_a_merge_and_an_orphan_root(repo: Repo) -> None:
    """Against the first parent; against nothing."""
    root = repo.git("commit-tree", "-m", "root", "HEAD^{tree}")
    merge = repo.git("commit-tree", "-m", "merge", "-p", "HEAD", "-p", root, "HEAD^{tree}")
    repo.git("update-ref", "refs/heads/ralph/aaaa", root)
    repo.git("update-ref", "refs/heads/ralph/bbbb", merge)
    site = pages(repo.path)
    assert compared(site).status == 200
    assert "added file.txt +1 -0" in words(site.get("branch?name=aaaa").text)
    assert site.get("branch?name=bbbb").status == 200
    assert "compared with its first parent" in site.get(f"commit?id={merge}").text


def test_many_commits_and_files_come_in_parts(repo: Repo) -> None:
    """A page has an end, and a way to the rest."""
    repo.git("switch", "--quiet", "--create", "ralph/a3f2")
    for number in range(320):
        repo.write(f"f{number:03}.txt", "x\n" * 40)
    repo.commit()
    tip = repo.head
    for number in range(120):
        tip = repo.git("commit-tree", "-m", f"commit {number}", "-p", tip, "HEAD^{tree}")
    repo.git("update-ref", "refs/heads/ralph/a3f2", tip)
    repo.git("switch", "--quiet", "main")
    site = pages(repo.path)
    html = site.get("branch?name=a3f2").text
    assert html.count("<li>") == 100
    assert "20 files more are not on this page." in html
    assert html.count('<tbody class="differs">') == 25
    assert len(html) < 600_000
    assert site.get("branch?name=a3f2&skip=100").text.count("<li>") == 21
    [address] = re.findall(r'href="[^"]*/(file\?[^"]*f299[^"]*)"', html)
    assert "40 1" not in words(site.get(address.replace("&amp;", "&")).text)
    assert "40 x" in words(site.get(address.replace("&amp;", "&")).text)
