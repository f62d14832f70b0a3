"""``worktree create``, as other programs call it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.commands.worktree.answers import create, data, envelope_of
from tests.support.git_shim import old_git, shim_git
from tests.support.needs import needs_other_users
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Result, command
from tests.support.trees import on_disk, owners
from tests.support.wait import CAP

pytestmark = pytest.mark.usefixtures("trusted")

TASK = "fix auth"

BRANCH = "quick-build-fix-auth"


def _refused(repo: Repo, *words: str | os.PathLike[str], cwd: Path | None = None) -> tuple[int, str, str]:
    """Return status, code and message of a call that changes nothing."""
    before = (repo.git("for-each-ref"), repo.worktrees(), repo.fingerprint(), on_disk(repo.path))
    result = command("worktree", *words, cwd=cwd or repo.path)
    assert (repo.git("for-each-ref"), repo.worktrees(), repo.fingerprint(), on_disk(repo.path)) == before
    error = envelope_of(result)["error"]
    return result.status, error["code"], error["message"]


def _warnings(result: Result) -> list[str]:
    return [str(printed["message"]) for printed in result.warnings]


def test_the_documented_answer(repo: Repo) -> None:
    """Path, branch and the full id of the commit."""
    assert create(repo, TASK) == {
        "path": f"{repo.path}/.ralph/worktrees/{BRANCH}",
        "branch": BRANCH,
        "basedOn": repo.head,
    }


def test_it_is_a_worktree_of_git(repo: Repo) -> None:
    """On that branch, with every file, ignored by the project."""
    path = Path(create(repo, TASK)["path"])
    inside = Repo(path)
    assert (inside.git("symbolic-ref", "--short", "HEAD"), inside.git("status", "--porcelain")) == (
        BRANCH,
        "",
    )
    assert on_disk(path) == {b"file.txt": ("100644", b"one\n")}
    assert repo.git("status", "--porcelain") == "?? .gitignore"


def test_the_rule_goes_where_the_configuration_says(repo: Repo) -> None:
    """As a session's does."""
    repo.write(".ralph/config.toml", 'ignore = "exclude"\n')
    create(repo, TASK)
    assert not (repo.path / ".gitignore").exists()
    assert ".ralph/worktrees/" in (repo.path / ".git/info/exclude").read_text()


def test_a_prefix(repo: Repo) -> None:
    """Begins branch and directory."""
    made = create(repo, TASK, "--prefix", "bot")
    assert (made["branch"], Path(made["path"]).name) == ("bot-fix-auth", "bot-fix-auth")


def test_a_base(repo: Repo) -> None:
    """Any revision."""
    first = repo.head
    repo.commit("second")
    assert create(repo, TASK, "--base", "HEAD~1")["basedOn"] == first


def test_head_is_that_of_the_checkout(repo: Repo, tmp_path: Path) -> None:
    """Called in another worktree, what is checked out there counts."""
    repo.git("worktree", "add", "-q", "-b", "feature", tmp_path / "feature")
    feature = Repo(tmp_path / "feature")
    commit = feature.commit("feature")
    assert create(repo, TASK, cwd=feature.path)["basedOn"] == commit


def test_called_in_one_of_ours_it_goes_beside(repo: Repo) -> None:
    """Not into it: that one may be removed."""
    outer = Path(create(repo, TASK)["path"])
    commit = Repo(outer).commit("inside")
    made = create(repo, "inner", cwd=outer)
    assert (Path(made["path"]).parent, made["basedOn"]) == (outer.parent, commit)
    assert Repo(outer).git("status", "--porcelain") == ""


def test_called_in_a_sub_directory(repo: Repo) -> None:
    """The project is the same."""
    repo.write("sub/file", "s\n")
    repo.commit("sub")
    assert create(repo, TASK, cwd=repo.path / "sub")["path"].startswith(f"{repo.path}/.ralph/")


def test_a_branch_that_is_taken_is_numbered(repo: Repo) -> None:
    """Twice, too."""
    repo.git("branch", BRANCH)
    assert [create(repo, TASK)["branch"] for _ in range(2)] == [f"{BRANCH}-2", f"{BRANCH}-3"]


def test_a_path_that_is_taken_is_numbered(repo: Repo) -> None:
    """Whatever is there is left alone; a symlink that leads nowhere is something."""
    precious = repo.write(f".ralph/worktrees/{BRANCH}/precious", "p\n")
    (repo.path / f".ralph/worktrees/{BRANCH}-2").symlink_to("nowhere")
    assert create(repo, TASK)["branch"] == f"{BRANCH}-3"
    assert precious.read_text() == "p\n"


def test_sixteen_at_once(repo: Repo) -> None:
    """Each has a name of its own, and none fails."""
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: create(repo, TASK), range(16)))
    names = {BRANCH, *(f"{BRANCH}-{number}" for number in range(2, 17))}
    assert {one["branch"] for one in made} == names
    assert {Path(path).name for path in repo.worktrees()} == names
    assert (repo.path / ".gitignore").read_text() == ".ralph/worktrees/\n"


def test_a_name_taken_at_the_last_moment_is_numbered(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the claim another process makes the branch."""
    steal = f'if mkdir "{tmp_path}/once" 2>/dev/null; then "$REAL" branch {BRANCH}; fi'
    monkeypatch.setenv(
        "PATH", shim_git(tmp_path / "shim", f'*" update-ref "*) {steal}; exec "$REAL" "$@" ;;')
    )
    assert create(repo, TASK)["branch"] == f"{BRANCH}-2"


def test_uncommitted_work_is_warned_about_and_left_alone(repo: Repo) -> None:
    """Once, with its names."""
    repo.write("new", "n\n")
    repo.write("file.txt", "changed\n")
    before = repo.fingerprint()
    result = command("worktree", "create", TASK, cwd=repo.path)
    assert _warnings(result) == [f"uncommitted work in {repo.path} is not in the new worktree: file.txt, new"]
    assert on_disk(Path(data(result)["path"])) == {b"file.txt": ("100644", b"one\n")}
    assert ((repo.path / "new").read_text(), (repo.path / "file.txt").read_text()) == ("n\n", "changed\n")
    assert {**repo.fingerprint(), "config": ""} == {**before, "config": ""}


def test_our_own_rule_is_no_uncommitted_work(repo: Repo) -> None:
    """Else every call after the first would warn."""
    create(repo, TASK)
    assert command("worktree", "create", TASK, cwd=repo.path).warnings == []
    repo.write(".gitignore", "mine\n.ralph/worktrees/\n")
    assert len(command("worktree", "create", TASK, cwd=repo.path).warnings) == 1


@pytest.mark.parametrize("typed", ["absolute", "relative"])
def test_a_path_of_ones_own(repo: Repo, tmp_path: Path, typed: str) -> None:
    """Relative to where it is typed."""
    target = tmp_path / "deep" / "tree"
    (repo.path / "sub").mkdir()
    word = target if typed == "absolute" else Path("../../deep/tree")
    made = create(repo, TASK, "--path", word, cwd=repo.path / "sub")
    assert made["path"] == os.fspath(target)
    assert Repo(target).git("status", "--porcelain") == ""


def test_a_path_through_a_symlink_is_printed_resolved(repo: Repo, tmp_path: Path) -> None:
    """Under the name that git will use."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert create(repo, TASK, "--path", tmp_path / "link" / "tree")["path"] == f"{tmp_path}/real/tree"


def test_a_path_that_is_there(repo: Repo, tmp_path: Path) -> None:
    """Is no collision of names."""
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    for word in ("there", "dangling"):
        assert _refused(repo, "create", TASK, "--path", tmp_path / word)[:2] == (6, "conflict")
    assert _refused(repo, "create", TASK, "--path", "")[:2] == (6, "conflict")


def test_a_path_inside_git(repo: Repo) -> None:
    """Would be taken for part of the repository."""
    assert _refused(repo, "create", TASK, "--path", ".git/tree")[:2] == (2, "usage")


def test_a_path_inside_another_worktree(repo: Repo, tmp_path: Path) -> None:
    """Would go with it."""
    repo.git("worktree", "add", "-q", "-b", "feature", tmp_path / "feature")
    assert _refused(repo, "create", TASK, "--path", tmp_path / "feature/tree")[:2] == (2, "usage")


def test_a_path_below_a_file(repo: Repo) -> None:
    """Cannot be made."""
    assert _refused(repo, "create", TASK, "--path", "file.txt/tree")[:2] == (2, "usage")


def test_a_path_that_git_does_not_ignore_is_warned_about(repo: Repo) -> None:
    """Inside the main checkout, ``git add`` would take it."""
    result = command("worktree", "create", TASK, "--path", "tree", cwd=repo.path)
    assert data(result)["path"] == f"{repo.path}/tree"
    assert len(result.warnings) == 1
    repo.write(".gitignore", "other/\n.ralph/worktrees/\n")
    repo.commit("ignored")
    ignored = command("worktree", "create", TASK, "--path", "other", cwd=repo.path)
    assert [printed for printed in ignored.warnings if printed["event"] == "path.not_ignored"] == []


def test_a_base_that_is_none(repo: Repo) -> None:
    """Nor an option."""
    for base in ("absent", "HEAD:file.txt", "--all", ""):
        assert _refused(repo, "create", TASK, f"--base={base}")[:2] == (4, "not_found"), base


@pytest.mark.parametrize("words", [["the"], [TASK, "--prefix", "a/b"], [TASK, "--prefix", "x" * 300]])
def test_a_name_that_cannot_be(repo: Repo, words: list[str]) -> None:
    """Is a mistake, and makes nothing."""
    assert _refused(repo, "create", *words)[:2] == (2, "usage")


def test_a_branch_below_is_in_the_way(repo: Repo) -> None:
    """Refs are files: there is no room beside a directory with the same name."""
    repo.git("branch", f"{BRANCH}/deep")
    status, code, message = _refused(repo, "create", TASK)
    assert (status, code) == (6, "conflict")
    assert f"{BRANCH}/deep" in message


def test_a_symlink_in_our_place(repo: Repo, tmp_path: Path) -> None:
    """Could lead anywhere."""
    (tmp_path / "elsewhere").mkdir()
    (repo.path / ".ralph").symlink_to(tmp_path / "elsewhere")
    assert _refused(repo, "create", TASK)[:2] == (6, "conflict")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_repository(tmp_path: Path) -> None:
    """Every command says so."""
    for words in (["create", TASK], ["cleanup", "x"], ["status"], ["list"]):
        result = command("worktree", *words, cwd=tmp_path)
        assert (result.status, envelope_of(result)["error"]["code"]) == (3, "not_a_repository")


def test_no_commit_yet(tmp_path: Path) -> None:
    """There is nothing to begin at; nothing is made."""
    repo = make_repo(tmp_path / "empty", empty=True)
    result = command("worktree", "create", TASK, cwd=repo.path)
    assert (result.status, envelope_of(result)["error"]["code"]) == (4, "not_found")
    assert on_disk(repo.path) == {}


def test_a_bare_repository(tmp_path: Path) -> None:
    """Has no checkout."""
    bare = tmp_path / "bare"
    subprocess.run(("git", "init", "-q", "--bare", bare), check=True)
    result = command("worktree", "create", TASK, cwd=bare)
    assert (result.status, envelope_of(result)["error"]["code"]) == (125, "failed")
    assert "bare repository" in envelope_of(result)["error"]["message"]


def test_git_before_2_15(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says which one is needed."""
    monkeypatch.setenv("PATH", old_git(tmp_path / "shim", "2.14.6"))
    assert command("worktree", "create", TASK, cwd=repo.path).status == 8


def test_a_failed_checkout_leaves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No branch, no worktree, no line in the configuration; it is a failure, not tried again."""
    before = (repo.path / ".git/config").read_bytes()
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;'))
    result = command("worktree", "create", TASK, cwd=repo.path)
    assert (result.status, envelope_of(result)["error"]["code"]) == (125, "failed")
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert list((repo.path / ".ralph/worktrees").iterdir()) == []
    assert (repo.path / ".git/config").read_bytes() == before


@pytest.mark.parametrize("words", [[], ["nonsense"], ["create"], ["create", TASK, "--sparse", "x"]])
def test_a_mistake_is_printed_as_json(repo: Repo, words: list[str]) -> None:
    """Without being asked; nothing is on stderr."""
    result = command("worktree", *words, cwd=repo.path)
    assert (result.status, result.stderr, envelope_of(result)["error"]["code"]) == (2, "", "usage")


def test_help_is_for_people(repo: Repo) -> None:
    """And no mistake."""
    for words in ([], ["create"], ["cleanup"]):
        result = command("worktree", *words, "--help", cwd=repo.path)
        assert (result.status, result.stdout.lstrip()[:6]) == (0, b"Usage:")


def test_the_project_can_be_named(repo: Repo, tmp_path: Path) -> None:
    """As in other commands."""
    for option in ("-C", "--project"):
        made = data(command("worktree", "create", TASK, option, repo.path, cwd=tmp_path))
        assert made["path"].startswith(os.fspath(repo.path))


def test_a_signal_during_the_checkout_leaves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that called it gave up."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setenv(
        "PATH", shim_git(tmp_path / "shim", f'*" read-tree --reset "*) echo > "{fifo}"; exec sleep 600 ;;')
    )
    argv = (PROGRAM, "worktree", "create", TASK)
    with subprocess.Popen(argv, cwd=repo.path, stdout=-1, stderr=-1) as running:
        try:
            fifo.read_text()
            running.terminate()
            out, err = running.communicate(timeout=CAP)
        finally:
            running.kill()
    result = Result(running.returncode, out, err.decode(), None)
    assert (result.status, envelope_of(result)["error"]["code"]) == (125, "failed")
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


@needs_other_users
def test_root_makes_nothing_of_its_own() -> None:
    """Everything belongs to the project's owner, who need not be able to read our libraries."""
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        Path(temporary).chmod(0o755)
        repo = make_repo(Path(temporary) / "project")
        env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CEILING_DIRECTORIES": temporary, "HOME": temporary}
        subprocess.run(("chown", "-R", "12345:12345", repo.path), check=True)
        result = command("worktree", "create", "Größe ändern", cwd=repo.path, env=env)
        path = Path(data(result)["path"])
        assert path.name == "quick-build-grosse-andern"
        assert owners(repo.path) == {(12345, 12345)}
        data(command("worktree", "cleanup", path, "--no-keep-branch", cwd=repo.path, env=env))
        assert owners(repo.path) == {(12345, 12345)}
