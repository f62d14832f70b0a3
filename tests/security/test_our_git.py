"""Our git runs nothing, and believes nothing, that an agent has put into the shared ``.git``.

Each test makes an attack in a real repository. With the defence switched off, the attack succeeds.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import branches
from ralph_wrap.commands import diff, review
from ralph_wrap.commands import drop as dropping
from ralph_wrap.errors import GitError, RalphError, TamperedError
from ralph_wrap.git import Git, command, git_environment, pointer, repository, shadow
from ralph_wrap.git import merge as merging
from ralph_wrap.interfaces.cli.diff import diff as show
from ralph_wrap.state import project
from tests.config.approvals import answered
from tests.interfaces.web.serving import pages
from tests.support import sessions
from tests.support.histories import grow, record
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Return the file that the program of the agent makes."""
    return tmp_path / "the-program-of-the-agent-ran"


@pytest.fixture
def program(script: Callable[[str], str], ran: Path) -> str:
    """Return the program of the agent."""
    return script(f'touch {ran}; [ -f "$1" ] && cat "$1"; exit 0')


@pytest.fixture
def attacked(repo: Repo) -> Repo:
    """Return a project with a branch of an agent; it and main change the same line."""
    repo.git("switch", "-q", "-c", "ralph/a3f2")
    repo.write("file.txt", "of the agent\n")
    repo.commit("by the agent")
    repo.git("switch", "-q", "main")
    repo.write("file.txt", "of the user\n")
    repo.commit("by the user")
    return repo


@contextlib.contextmanager
def _no_shadow(git: Git, found: repository.Repository) -> Iterator[Git]:
    """Give git the repository of the agent where it should have a shadow git directory."""
    yield Git(git.cwd, git.env, objects=found.common_dir / "objects")


def _switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the defences off."""
    monkeypatch.setattr(shadow, "shadow_repository", _no_shadow)
    monkeypatch.setattr(diff, "require_genuine", lambda *_: None)
    for name in ("_IMMUNE", "_NO_PROTOCOL"):
        monkeypatch.setattr(command, name, {})
    for name in ("_ALWAYS", "_NOT_FROM_THE_REPOSITORY"):
        monkeypatch.setattr(command, name, ())


# What a user does with the branch of an agent


def _review(repo: Repo) -> None:
    review.look(project.find_project(repo.path, os.environ))


def _diff(repo: Repo) -> None:
    show("a3f2", None, repo.path)


def _drop(repo: Repo) -> None:
    found_project = project.find_project(repo.path, os.environ)
    dropping.drop(found_project, dropping.DropSelection(names=("a3f2",)), 0)


def _open_page(repo: Repo) -> None:
    pages(repo.path).get("branch?name=a3f2")


LOOKS = {"review": _review, "diff": _diff, "drop": _drop, "web": _open_page}


def _look(name: str, repo: Repo) -> None:
    """Look at the work of the agent; an error is an answer, too."""
    with contextlib.suppress(RalphError, SystemExit):
        LOOKS[name](repo)


# What an agent does


def _lazy_fetch(repo: Repo, program: str) -> None:
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "evil",
        "remote.evil.promisor": "true",
        "remote.evil.url": str(repo.path),
        "remote.evil.uploadpack": program,
    }.items():
        repo.git("config", key, value)
    blob = repo.git("rev-parse", "ralph/a3f2:file.txt")
    (repo.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def _with_attribute(repo: Repo, attribute: str, key: str, value: str) -> None:
    (repo.path / ".git" / "info").mkdir(exist_ok=True)
    repo.write(".git/info/attributes", f"file.txt {attribute}=evil\n")
    repo.git("config", key, value)


def _merge_driver(repo: Repo, program: str) -> None:
    _with_attribute(repo, "merge", "merge.evil.driver", program)


def _default_merge_driver(repo: Repo, program: str) -> None:
    repo.git("config", "merge.evil.driver", program)
    repo.git("config", "merge.default", "evil")


def _diff_tool(repo: Repo, program: str) -> None:
    repo.git("config", "diff.external", program)


def _included_diff_tool(repo: Repo, program: str) -> None:
    repo.write(".git/more", f"[diff]\n\texternal = {program}\n")
    repo.git("config", "include.path", "more")


def _diff_driver(repo: Repo, program: str) -> None:
    _with_attribute(repo, "diff", "diff.evil.command", program)


def _text_conversion(repo: Repo, program: str) -> None:
    _with_attribute(repo, "diff", "diff.evil.textconv", program)


ATTACKS = [
    *((_lazy_fetch, name) for name in LOOKS),
    *((_merge_driver, name) for name in ("review", "drop")),
    *((_default_merge_driver, name) for name in ("review", "drop")),
    *((attack, "diff") for attack in (_diff_tool, _included_diff_tool, _diff_driver, _text_conversion)),
]


@pytest.mark.parametrize(("attack", "look"), ATTACKS)
def test_no_program_of_the_agent_runs(
    attacked: Repo,
    program: str,
    ran: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[Repo, str], None],
    look: str,
) -> None:
    """Rows 1, 2 and 4 of the attacks: the user only looks at the work of an agent."""
    attack(attacked, program)
    _look(look, attacked)
    assert not ran.exists()
    _switch_off(monkeypatch)
    _look(look, attacked)
    assert ran.exists()


@pytest.mark.parametrize("defence", ["_IMMUNE", "_NO_PROTOCOL"])
def test_a_missing_object_is_not_fetched_by_any_git(
    attacked: Repo, program: str, ran: Path, monkeypatch: pytest.MonkeyPatch, defence: str
) -> None:
    """Git before 2.39.4 does not know GIT_NO_LAZY_FETCH; each of the two defences is enough, also alone."""
    _lazy_fetch(attacked, program)
    git = Git(attacked.path, git_environment(os.environ))
    blob = attacked.git("rev-parse", "ralph/a3f2:file.txt")
    monkeypatch.setattr(command, defence, {})
    with pytest.raises(GitError):
        merging.content(git, blob)
    assert not ran.exists()
    _switch_off(monkeypatch)
    with pytest.raises(GitError):
        merging.content(git, blob)
    assert ran.exists()


def test_no_pager_of_the_agent_gets_the_terminal(
    attacked: Repo, script: Callable[[str], str], ran: Path
) -> None:
    """Row 4: the repository names no pager; plain git runs it."""
    attacked.git("config", "core.pager", script(f"touch {ran}; cat"))
    for argv, runs in (((PROGRAM, "diff", "a3f2"), False), (("git", "diff", "main", "ralph/a3f2"), True)):
        with Terminal(*argv, cwd=attacked.path, env={"PAGER": "cat"}) as terminal:
            assert terminal.finish() == 0
            assert "+of the agent" in terminal.words
        assert ran.exists() == runs


def test_another_repository_is_an_error(
    repo: Repo, tmp_path: Path, script: Callable[[str], str], ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 7: a file ``commondir`` in ``.git`` leads to it. No session falls back to the plain directory."""
    other = Repo(tmp_path / "other")
    repo.git("clone", "-q", repo.path, other.path)
    repo.write(".git/commondir", f"{other.path}/.git\n")
    with pytest.raises(TamperedError, match="other/"):
        project.find_project(repo.path, os.environ)
    ended = run(repo.path, "-n", "1", "--", script(f"touch {ran}"))
    assert (ended.status, ran.exists()) == (9, False)
    monkeypatch.setattr(pointer, "common_dir_by_place", lambda _: (other.path / ".git").resolve())
    found = project.find_project(repo.path, os.environ).repository
    assert found is not None
    assert found.common_dir == other.path / ".git"


def test_a_linked_worktree_has_its_own_repository(repo: Repo, tmp_path: Path) -> None:
    """The user's worktrees, submodules and separate git directories are no attack."""
    repo.git("worktree", "add", "-q", tmp_path / "linked")
    repo.git("clone", "-q", "--separate-git-dir", tmp_path / "apart.git", repo.path, tmp_path / "apart")
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", repo.path, "below")
    for directory, common_dir in {
        tmp_path / "linked": repo.path / ".git",
        tmp_path / "apart": tmp_path / "apart.git",
        repo.path / "below": repo.path / ".git" / "modules" / "below",
    }.items():
        found = project.find_project(directory, os.environ).repository
        assert found is not None
        assert found.common_dir == common_dir


def test_the_blob_that_is_shown_is_the_one_that_lands(
    attacked: Repo, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 9: a ref below ``refs/replace`` puts a harmless blob in its place."""
    blob = attacked.git("rev-parse", "ralph/a3f2:file.txt")
    attacked.write("harmless", "harmless\n")
    harmless = attacked.git("hash-object", "-w", "harmless")
    attacked.git("update-ref", f"refs/replace/{blob}", harmless)
    _look("diff", attacked)
    assert "+of the agent" in capfd.readouterr().out
    _switch_off(monkeypatch)
    _look("diff", attacked)
    assert "+harmless" in capfd.readouterr().out


def test_no_record_hides_a_commit(repo: Repo) -> None:
    """Row 10: the record says that the branch began at its first commit. Plain git would omit that one."""
    first = grow(repo, "ralph/a3f2", "main", {"evil": "evil\n"})
    tip = grow(repo, "ralph/a3f2", "ralph/a3f2", {"good": "good\n"})
    record(repo, "a3f2", first)
    found_project = project.find_project(repo.path, os.environ)
    [branch] = branches.read(found_project)
    assert branch.base == first
    with project.objects_of(found_project) as objects:
        assert diff.sides(found_project, objects, "a3f2") == diff.DiffSides(repo.head, tip)
    assert ["evil" in text for text in (_page(repo), repo.git("diff", first, tip))] == [True, False]


def test_no_merge_base_hides_a_revert(repo: Repo, capfd: pytest.CaptureFixture[str]) -> None:
    """Main has mended a mistake, and the agent brings it back. The first of two merge bases has it still."""
    grow(repo, "mended", "main", {"file.txt": "safe\n"})
    grow(repo, "side", "main", {"other": "other\n"})
    grow(repo, "ralph/a3f2", "side", {"new": "new\n", "file.txt": "one\n"}, merging=["mended"])
    repo.git("merge", "-q", "side")
    repo.git("merge", "-q", "mended", "-m", "both")
    assert "safe" not in repo.git("diff", repo.git("merge-base", "main", "ralph/a3f2"), "ralph/a3f2")
    merged = repo.git("merge-tree", "--write-tree", "main", "ralph/a3f2")
    assert repo.git("show", f"{merged}:file.txt") == "one"
    _look("diff", repo)
    assert "-safe" in capfd.readouterr().out
    assert "safe" in _page(repo)


def _page(repo: Repo) -> str:
    return pages(repo.path).get("branch?name=a3f2").text


def _graft(repo: Repo, commit: str, parent: str) -> None:
    (repo.path / ".git" / "info").mkdir(exist_ok=True)
    repo.write(".git/info/grafts", f"{commit} {parent}\n")


def _commit_graph(repo: Repo, commit: str, parent: str) -> None:
    """Write a commit graph that gives a commit a parent (gitformat-commit-graph(5))."""
    repo.git("-c", "commitGraph.generationVersion=1", "commit-graph", "write", "--reachable")
    path = repo.path / ".git" / "objects" / "info" / "commit-graph"
    content = bytearray(path.read_bytes())
    chunks = {
        bytes(content[start : start + 4]): struct.unpack(">Q", content[start + 4 : start + 12])[0]
        for start in range(8, 8 + 12 * content[6], 12)
    }
    names = content[chunks[b"OIDL"] : chunks[b"CDAT"]]
    places = {names[start : start + 20].hex(): start // 20 for start in range(0, len(names), 20)}
    entry = chunks[b"CDAT"] + 36 * places[commit]
    content[entry + 20 : entry + 24] = struct.pack(">I", places[parent])
    path.chmod(0o600)
    path.write_bytes(content)


@pytest.mark.parametrize("forge", [_graft, _commit_graph])
def test_only_a_commit_says_which_parents_it_has(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, forge: Callable[[Repo, str, str], None]
) -> None:
    """Row 15: main would fast-forward to a commit that has none of its history."""
    tip = grow(repo, "ralph/a3f2", None, {"new": "new\n"}, {"newer": "newer\n"})
    forge(repo, repo.git("rev-parse", f"{tip}~1"), repo.head)
    found_project = project.find_project(repo.path, os.environ)
    assert not merging.is_ancestor(found_project.git, repo.head, tip)
    with project.objects_of(found_project) as objects:
        assert not merging.is_ancestor(objects, repo.head, tip)
    _switch_off(monkeypatch)
    assert merging.is_ancestor(Git(repo.path, git_environment(os.environ)), repo.head, tip)


def test_no_signer_of_the_agent_runs(attacked: Repo, program: str, ran: Path) -> None:
    """Row 5: a merge makes a commit, and the repository says that each commit is signed, and by what."""
    attacked.write("file.txt", "one\n")
    attacked.commit("no conflict any more")
    attacked.git("config", "commit.gpgSign", "true")
    attacked.git("config", "gpg.program", program)
    arguments = ("merge", "a3f2", "--no-ff", "--despite-tampering")
    sessions.command(*arguments, cwd=attacked.path)  # the user's own gpg is asked, and may have no key
    assert not ran.exists()
    sessions.command(*arguments, cwd=attacked.path, env={"RALPH_TRUST": "1"})  # the defence is off
    assert ran.exists()


def test_a_program_that_the_user_has_approved_runs(attacked: Repo, program: str, ran: Path) -> None:
    """The repository names a text conversion. It works once ``ralph-wrap trust`` has approved it."""
    attacked.write(".gitattributes", "file.txt diff=mine\n")
    attacked.git("config", "diff.mine.textconv", program)
    _diff(attacked)
    assert not ran.exists()
    answered(attacked.path)
    _diff(attacked)
    assert ran.exists()


def test_the_programs_of_the_user_still_run(
    attacked: Repo, program: str, ran: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A driver of the user's own configuration, for files that the project's ``.gitattributes`` names."""
    attacked.write(".gitattributes", "file.txt diff=mine\n")
    attacked.git("config", "--global", "diff.mine.textconv", program)
    _diff(attacked)
    assert ran.exists()
    assert "file.txt" in capfd.readouterr().out
