"""A worktree is ready to work: ignored files that the agent needs, and ports of its own."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.ports import port_for
from tests.support.orphans import sweep
from tests.support.sessions import Result, Session, command, run
from tests.support.shim import shim_git
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

SH = ("-n", "1", "--", "sh", "-c")
LIST = "find . -name .git -prune -o ! -type d -print"


@pytest.fixture
def app(repo: Repo) -> Repo:
    """Return a repository that ignores secrets and dependencies, and has some."""
    repo.write(".gitignore", ".env*\n!.env.example\nnode_modules/\n.ralph/\n")
    repo.write(".env.example", "KEY=\n")
    repo.commit("rules")
    repo.write(".env", "KEY=secret\n").chmod(0o600)
    repo.write("web/.env.local", "PORT=1\n")
    repo.write("web/node_modules/pkg/index.js", "1\n")
    return repo


def configure(repo: Repo, *patterns: str) -> None:
    """Have files copied that match."""
    repo.write(".ralph/config.toml", f"copy = {json.dumps(patterns)}\n")


def files_in(ended: Result) -> list[str]:
    """Return what an agent that lists its files has found, but for what is committed."""
    assert ended.status == 0, ended.stderr
    found = {line.removeprefix("./") for line in ended.stdout.decode().splitlines()}
    return sorted(found - {".gitignore", ".env.example", "file.txt"})


def left_out(ended: Result) -> list[str]:
    """Return what a session has said of files that it did not copy."""
    return [event["message"] for event in ended.warnings if event["event"] == "files.not_copied"]


def copied(ended: Result) -> list[int]:
    """Return how many files it says it has copied."""
    return [event["count"] for event in ended.events if event["event"] == "files.copied"]


# Which files


def test_without_a_pattern_nothing_is_copied(app: Repo) -> None:
    """Nor looked for."""
    ended = run(app.path, *SH, LIST)
    assert (files_in(ended), copied(ended), left_out(ended)) == ([], [], [])


def test_without_a_pattern_no_git_is_run_for_it(app: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would wait for that; with one there are three."""
    seen = []
    for patterns in ([], [".env*"]):
        trace = app.path.parent / f"trace-{len(patterns)}"
        configure(app, *patterns)
        monkeypatch.setenv("GIT_TRACE", str(trace))
        run(app.path, *SH, "true")
        text = trace.read_text()
        seen.append((text.count("built-in: git ls-files --others"), text.count("built-in: git check-ignore")))
    (listed, checked), (listed_then, checked_then) = seen
    assert (listed, listed_then, checked_then - checked) == (0, 1, 2)


def test_ignored_files_that_match_are_there(app: Repo) -> None:
    """By the key of the configuration."""
    configure(app, ".env*")
    ended = run(app.path, *SH, f"{LIST}; test $(cat .env) = KEY=secret")
    assert (files_in(ended), copied(ended), left_out(ended)) == ([".env", "web/.env.local"], [2], [])


def test_a_file_of_patterns_is_read(app: Repo) -> None:
    """With comments, directories and exceptions, as git reads such files."""
    app.write(".worktreeinclude", "# dependencies\nnode_modules/\n\n.env*\n!/.env\n")
    app.commit("include")
    ended = run(app.path, *SH, f"{LIST} | grep -v include")
    assert files_in(ended) == ["web/.env.local", "web/node_modules/pkg/index.js"]


def test_the_configuration_has_the_last_word(app: Repo) -> None:
    """Over the file, which is everybody's."""
    app.write(".worktreeinclude", ".env*\n!web/*\n")
    app.commit("include")
    configure(app, "!/.env", "web/.env.local")
    assert files_in(run(app.path, *SH, f"{LIST} | grep -v include")) == ["web/.env.local"]


def test_what_is_merely_untracked_is_not_copied(app: Repo) -> None:
    """It is somebody's unfinished work; nor is what is tracked, as it is on the disk."""
    app.write("new.txt", "mine\n")
    app.write("web/.env.example", "brought back by a rule\n")
    app.write("file.txt", "changed\n")
    configure(app, "*")
    ended = run(app.path, *SH, f"{LIST}; test $(cat file.txt) = one")
    assert files_in(ended) == [".env", "web/.env.local", "web/node_modules/pkg/index.js"]
    assert left_out(ended) == []


def test_nothing_of_ours_is_copied(app: Repo) -> None:
    """Not even where a pattern means everything: another session's worktree, records."""
    configure(app, "*", ".ralph", ".git")
    assert run(app.path, *SH, "true").status == 0
    ended = run(app.path, *SH, "find .ralph")
    assert (ended.status, left_out(ended)) == (1, [])


def test_every_name_of_a_file_is_copied(app: Repo) -> None:
    """Spaces, newlines, what no encoding has, what looks like a pattern."""
    names = [b".env a", b".env\nb", b".env\xff", b".env[x]*", b".env-\xc3\xbc "]
    for name in names:
        (app.path / os.fsdecode(name)).write_bytes(name)
    configure(app, "/.env?*")
    ended = run(app.path, *SH, "for file in .env?*; do cat \"$file\"; printf '\\0'; done")
    assert {*ended.stdout.split(b"\0")} >= {*names}
    assert copied(ended) == [5]


def test_what_the_commit_has_is_left_alone(app: Repo) -> None:
    """A file that this checkout does not track any more, but the base does."""
    app.write("kept.log", "committed\n")
    app.commit("kept")
    base = app.head
    app.git("rm", "-q", "--cached", "kept.log")
    app.write(".gitignore", "*.log\n.env*\n.ralph/\n")
    app.git("commit", "-qam", "ignored now")
    app.write("kept.log", "local\n")
    configure(app, "*.log")
    ended = run(app.path, "--base", base, *SH, "cat kept.log; git status --porcelain")
    assert (ended.stdout, left_out(ended)) == (b"committed\n", [])


# What must not come into the saved work


def test_what_would_not_be_ignored_is_left_out(app: Repo) -> None:
    """The rule is not committed: ``git add -A`` would commit the secret."""
    app.write(".gitignore", ".env*\n!.env.example\nnode_modules/\n.ralph/\nsecret\n")
    app.write("secret", "s\n")
    configure(app, "secret", ".env")
    ended = run(app.path, *SH, "git add -A; git status --porcelain; ls secret; cat .env")
    assert ended.stdout == b"KEY=secret\n"
    assert left_out(ended) == ["not copied into the worktree: secret (would not be ignored in the worktree)"]
    assert ended.report["saved"] is None


def test_copies_are_never_saved_or_committed(app: Repo) -> None:
    """Neither by the agent's git nor by ours; the exit report counts them."""
    app.write("excluded.key", "k\n")
    (app.path / ".git" / "info" / "exclude").write_text("*.key\n")
    configure(app, ".env*", "node_modules", "*.key")
    ended = run(app.path, *SH, "echo a > a; git add -A; git commit -qm a; echo b > b")
    branch = ended.report["branch"]
    assert app.git("diff", "--name-only", "main", branch) == "a"
    assert app.git("diff", "--name-only", branch, f"{branch}-wip") == "b"
    assert ended.report["ignored_removed"] == {
        "files": 4,
        "paths": [".env", "excluded.key", "web/.env.local", "web/node_modules/"],
    }
    assert app.worktrees() == []


def test_copies_are_no_work(app: Repo) -> None:
    """An agent that does nothing stalls, and leaves nothing."""
    configure(app, ".env*")
    ended = run(app.path, "--max-stalls", "1", "--drop-empty", "--", "true")
    assert ended.ending == ("max-stalls", 1, 0)
    assert app.branches() == ["main"]


def test_a_repository_is_never_copied(app: Repo) -> None:
    """A worktree that holds one cannot be saved in full, and would stay for ever."""
    modules = app.path / "web" / "node_modules"
    app.git("init", "-q", modules / "dep")
    app.git("init", "-q", "--bare", modules / "fixture.git")
    for name in ("dep/file", "fixture.git/refs/x", "fixture.git/objects/x"):
        (modules / name).write_text("x")
    configure(app, "node_modules")
    ended = run(app.path, *SH, LIST)
    assert files_in(ended) == ["web/node_modules/pkg/index.js"]
    assert left_out(ended) == [
        "not copied into the worktree: web/node_modules/dep, web/node_modules/fixture.git (are repositories)"
    ]
    assert (ended.report["kept"], app.worktrees()) == (None, [])


# Symlinks


def test_a_symlink_inside_stays_a_symlink(app: Repo) -> None:
    """It leads to the copy, not to the project."""
    (app.path / "web" / "node_modules" / "link").symlink_to("pkg/index.js")
    configure(app, "node_modules")
    ended = run(app.path, *SH, "readlink web/node_modules/link; echo 2 > web/node_modules/link")
    assert ended.stdout == b"pkg/index.js\n"
    assert (app.path / "web" / "node_modules" / "pkg" / "index.js").read_text() == "1\n"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "{project}/file.txt", "way/out"])
def test_a_symlink_that_leads_out_is_left_out(app: Repo, target: str) -> None:
    """Absolute, through the parent, through another symlink; and so is what it leads to."""
    (app.path / "way").symlink_to("..")
    (app.path / ".env.link").symlink_to(target.format(project=app.path))
    configure(app, ".env.link")
    ended = run(app.path, *SH, "ls -A .env.link")
    assert ended.stdout == b""
    assert left_out(ended) == [
        "not copied into the worktree: .env.link (are symlinks that lead out, or are not relative)"
    ]


def test_nothing_is_written_through_a_symlink_of_the_commit(app: Repo) -> None:
    """The checkout has a directory where the base has a link out of the worktree."""
    outside = app.path.parent / "outside"
    outside.mkdir()
    (app.path / "data").symlink_to(outside)
    app.commit("link")
    base = app.head
    app.git("rm", "-q", "data")
    app.commit("no link")
    app.write("data/.env", "x")
    configure(app, ".env*")
    ended = run(app.path, "--base", base, *SH, LIST)
    assert (ended.status, [*outside.iterdir()]) == (0, [])
    assert ".env" in files_in(ended)


def test_a_linked_directory_is_not_copied_as_well(app: Repo) -> None:
    """Its files are there already: the project's own."""
    app.write("web/node_modules/pkg/index.js", "shared\n")
    configure(app, "node_modules")
    ended = run(app.path, "--link", "web/node_modules", *SH, "cat web/node_modules/pkg/index.js")
    assert (ended.stdout, copied(ended), left_out(ended)) == (b"shared\n", [0], [])


def test_a_file_of_patterns_that_is_a_symlink_is_not_read(app: Repo) -> None:
    """It may lead out of the project; the session goes on and says so."""
    (app.path.parent / "patterns").write_text(".env\n")
    (app.path / ".worktreeinclude").symlink_to(app.path.parent / "patterns")
    ended = run(app.path, *SH, LIST)
    assert files_in(ended) == []
    assert len(left_out(ended)) == 1


# How they are copied


def test_mode_and_time_are_kept(app: Repo) -> None:
    """Of files, and the modes of the directories that hold them."""
    source = app.path / ".env"
    os.utime(source, ns=(10**18, 10**18 + 123_456_789))
    app.write("web/node_modules/run", executable=True)
    (app.path / "web" / "node_modules").chmod(0o700)
    configure(app, ".env", "node_modules")
    names = ".env web/node_modules/run web/node_modules"
    ended = run(app.path, *SH, f"stat -c %a {names}; stat -c %y .env")
    assert ended.stdout == b"600\n755\n700\n2001-09-09 01:46:40.123456789 +0000\n"


def test_a_copy_is_the_agents_own(app: Repo) -> None:
    """What it writes there is not in the project."""
    configure(app, ".env")
    assert run(app.path, *SH, "echo other >> .env").status == 0
    assert (app.path / ".env").read_text() == "KEY=secret\n"


def test_a_file_of_holes_takes_no_room(app: Repo) -> None:
    """A disk image of 50 GB with a few bytes in it."""
    with (app.path / ".env.img").open("wb") as image:
        image.seek(50 << 30)
        image.write(b"end")
    configure(app, "*.img")
    ended = run(app.path, *SH, "stat -c '%s %b' .env.img; tail -c 3 .env.img")
    size, blocks, end = ended.stdout.split()
    assert (int(size), int(blocks) < 1000, end) == ((50 << 30) + 3, True, b"end")


def test_many_files_are_copied(app: Repo) -> None:
    """More than a command line or a pipe holds."""
    for number in range(50):
        directory = app.path / "web" / "node_modules" / f"package-{number}" / "a-longer-name-of-a-directory"
        directory.mkdir(parents=True)
        for one in range(100):
            (directory / f"a-rather-long-name-of-a-file-{one}.js").write_text("x")
    configure(app, "node_modules/")
    ended = run(app.path, *SH, f"{LIST} | wc -l")
    assert (copied(ended), int(ended.stdout)) == ([5001], 5004)


def test_one_file_that_cannot_be_copied_keeps_no_other_from_it(
    app: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is gone once it was listed: one warning, and the session goes on."""
    case = f'*" check-ignore --verbose "*) rm -f {app.path}/.env ;;'
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", case))
    configure(app, ".env*")
    ended = run(app.path, *SH, LIST)
    assert files_in(ended) == ["web/.env.local"]
    assert left_out(ended) == [
        "not copied into the worktree: .env (cannot be copied: No such file or directory)"
    ]


@pytest.mark.parametrize("failing", ["ls-files --others", "check-ignore --verbose"])
def test_a_git_that_fails_is_told(app: Repo, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """The session goes on, in its worktree and without the copies."""
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", f'*" {failing} "*) exit 128 ;;'))
    configure(app, ".env*")
    ended = run(app.path, *SH, LIST)
    assert (files_in(ended), len(left_out(ended)), ended.report["fallback"]) == ([], 1, None)


def test_a_signal_cuts_copying_short(app: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent is started, and nothing is left."""
    case = '*" ls-files --others "*) kill -TERM $PPID ;;'
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", case))
    (app.path / ".env.link").symlink_to("file.txt")
    configure(app, ".env.link")
    ended = run(app.path, *SH, "touch $RALPH_PROJECT/../ran")
    assert (ended.status, copied(ended), app.worktrees()) == (128 + signal.SIGTERM, [0], [])
    assert not (app.path.parent / "ran").exists()


# Whoever starts them, however they end


def test_spawn_copies_as_well(app: Repo) -> None:
    """The worktree that stays has them until ``rm``."""
    configure(app, ".env")
    started = command("spawn", *SH, "cat .env", cwd=app.path)
    assert started.status == 0, started.stderr
    eventually(lambda: [*app.path.glob(".ralph/run/sessions/*/report.json")], "the report")
    [kept] = app.path.glob(".ralph/worktrees/*")
    assert (kept / ".env").read_text() == "KEY=secret\n"
    assert command("rm", kept.name, cwd=app.path).status == 0
    assert app.worktrees() == []


def test_the_plain_root_gets_no_copies(app: Repo) -> None:
    """It is the checkout itself."""
    configure(app, ".env")
    assert copied(run(app.path, "--isolation", "off", *SH, "true")) == []


def test_a_sweep_removes_copies_too(app: Repo) -> None:
    """After a kill, saving none of them."""
    configure(app, ".env*")
    with Session(app.path, *SH, "echo x > new; sleep 600") as session:
        eventually(lambda: [*app.path.glob(".ralph/worktrees/*/new")], "the agent's work")
        session.send(signal.SIGKILL)
        session.process.wait()
    assert sweep(app).status == 0
    [wip] = [branch for branch in app.branches() if branch.endswith("-wip")]
    assert app.git("diff", "--name-only", "main", wip) == "new"
    assert (app.worktrees(), (app.path / ".env").read_text()) == ([], "KEY=secret\n")


# Large files


@pytest.mark.parametrize(("given", "seen"), [("1", "1"), (None, "unset")])
def test_large_files_are_downloaded_as_the_user_wants(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, given: str | None, seen: str
) -> None:
    """Git LFS is asked by a variable, in our checkout and in the agent's; we neither set nor remove it."""
    repo.write(".gitattributes", "*.bin filter=lfs\n")
    repo.write("large.bin", "pointer\n")
    repo.commit("large")
    repo.git("config", "filter.lfs.smudge", "cat; echo ${GIT_LFS_SKIP_SMUDGE-unset}")
    if given is not None:
        monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", given)
    ended = run(repo.path, *SH, "cat large.bin; echo ${GIT_LFS_SKIP_SMUDGE-unset}")
    assert ended.stdout.decode().split() == ["pointer", seen, seen]


# Ports


def test_the_agent_has_ports_of_its_own(repo: Repo) -> None:
    """Ten, the same in each iteration, and those of its id where nobody else has them."""
    ended = run(repo.path, "-n", "2", "--", "sh", "-c", "echo $RALPH_PORT")
    first, second = map(int, ended.stdout.split())
    assert first == second == port_for(ended.report["id"], [])


def test_sessions_beside_each_other_have_other_ports(repo: Repo) -> None:
    """A session looks at the records of those that live."""
    agent = "echo $RALPH_PORT > $RALPH_PROJECT/../port-$RALPH_AGENT_ID; sleep 600"
    with Session(repo.path, *SH, agent) as session:
        [port] = eventually(lambda: [*repo.path.parent.glob("port-????")], "the first port")
        held = int(eventually(port.read_text, "what is in it"))
        beside = run(repo.path, *SH, "echo $RALPH_PORT")
        others = [session.wait_for("session.registered")["agent_id"]]
        assert int(beside.stdout) == port_for(beside.report["id"], others) != held


def test_a_port_is_one_that_can_be_used(repo: Repo) -> None:
    """Of every id: 20000 to 59990, in steps of ten."""
    assert repo.path.is_dir()
    ports = {port_for(f"{number:04x}", []) for number in range(1 << 16)}
    assert ports == {*range(20_000, 60_000, 10)}


@pytest.mark.slow
def test_two_ids_never_share_a_port() -> None:
    """Whichever of the two was first, and whether or not it has ended in between."""
    by_port = defaultdict(list)
    for number in range(1 << 16):
        by_port[port_for(f"{number:04x}", [])].append(f"{number:04x}")
    for ids in by_port.values():
        for one, other in combinations(ids, 2):
            alone = port_for(one, [])
            assert port_for(other, [one, other]) != alone
            assert port_for(one, [other, one]) != alone


def test_names_that_are_no_ids_are_passed_over() -> None:
    """An agent can write into the directory of records."""
    assert port_for("a3f2", ["", "zzzz", "a3f2x", "\udcff", "A3F2"]) == port_for("a3f2", [])
