"""Ignored files that an agent needs are in its worktree, and never in its work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.worktree.create.copied import configure, copied, files_in, left_out

pytestmark = pytest.mark.usefixtures("ended", "trusted")


SH = ("-n", "1", "--", "sh", "-c")

LIST = "find . -name .git -prune -o ! -type d -print"


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


def test_untracked_files_are_not_copied(app: Repo) -> None:
    """It is the user's unfinished work; nor is a tracked file, as it is on the disk."""
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
