"""Worktrees and records belong to the repository: no removal of a user's worktree touches a session's."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, command, run

if TYPE_CHECKING:
    from collections.abc import Callable

SH = ("-n", "1", "--", "sh", "-c")
PLACE = "pwd; echo $RALPH_PROJECT"


class Layout(NamedTuple):
    """A repository with a linked worktree of its user.

    Attributes:
        user: the linked worktree, on branch feat, one commit ahead of main.
        root: where the worktrees and records of sessions belong.
        project: what the agent is told as the project.

    """

    user: Repo
    root: Path
    project: Path


def _git(cwd: Path, *words: str | Path) -> None:
    command_line = ("git", "-c", "protocol.file.allow=always", *words)
    subprocess.run(command_line, cwd=cwd, check=True, capture_output=True)


def _linked(at: Path, path: Path) -> Repo:
    _git(at, "worktree", "add", "-q", "-b", "feat", path, "main")
    made = Repo(path)
    made.write("sub/feat.txt", "feat\n")
    made.commit("feat")
    return made


def _normal(tmp: Path) -> Layout:
    main = make_repo(tmp / "app").path
    return Layout(_linked(main, tmp / "feat"), main, main)


def _inside(tmp: Path) -> Layout:
    main = make_repo(tmp / "app").path
    return Layout(_linked(main, main / "feat"), main, main)


def _hidden(tmp: Path) -> Layout:
    make_repo(tmp / "source")
    _git(tmp, "clone", "-q", "--bare", "source", "all/.bare")
    (tmp / "all/.git").write_text("gitdir: ./.bare\n")
    user = _linked(tmp / "all", tmp / "all/feat")
    return Layout(user, tmp / "all", user.path)


def _bare(tmp: Path) -> Layout:
    make_repo(tmp / "source")
    _git(tmp, "clone", "-q", "--bare", "source", "app.git")
    user = _linked(tmp / "app.git", tmp / "feat")
    return Layout(user, tmp / "app.git.ralph", user.path)


def _in_bare(tmp: Path) -> Layout:
    make_repo(tmp / "source")
    _git(tmp, "clone", "-q", "--bare", "source", "app.git")
    user = _linked(tmp / "app.git", tmp / "app.git/feat")
    return Layout(user, tmp / "app.git.ralph", user.path)


def _dot_git_is_bare(tmp: Path) -> Layout:
    make_repo(tmp / "source")
    _git(tmp, "clone", "-q", "--bare", "source", "app/.git")
    user = _linked(tmp / "app", tmp / "app/feat")
    return Layout(user, tmp / "app", user.path)


def _own_configuration(tmp: Path) -> Layout:
    main = make_repo(tmp / "app")
    main.git("config", "extensions.worktreeConfig", "true")
    user = _linked(main.path, tmp / "feat")
    main.git("config", "--worktree", "core.bare", "true")
    return Layout(user, main.path, user.path)


def _separate(tmp: Path) -> Layout:
    (tmp / "git").mkdir()
    main = make_repo(tmp / "app").path
    _git(tmp, "init", "-q", "--separate-git-dir", tmp / "git/app", main)
    _git(main, "config", "core.worktree", main)
    return Layout(_linked(main, tmp / "feat"), main, main)


def _submodule(tmp: Path) -> Layout:
    make_repo(tmp / "source")
    _git(make_repo(tmp / "super").path, "submodule", "add", "-q", tmp / "source", "module")
    main = tmp / "super/module"
    return Layout(_linked(main, tmp / "feat"), main, main)


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    "beside the main checkout": _normal,
    "inside the main checkout": _inside,
    ".bare and a .git file": _hidden,
    "beside a bare repository": _bare,
    "inside a bare repository": _in_bare,
    "a .git directory that is bare": _dot_git_is_bare,
    "core.bare and extensions.worktreeConfig": _own_configuration,
    "a separate git directory": _separate,
    "a submodule": _submodule,
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    """Return each layout."""
    return LAYOUTS[request.param](tmp_path)


def _listed(cwd: Path) -> list[str]:
    answer = command("ps", "--all", "--json", cwd=cwd)
    assert answer.status == 0, answer.stderr
    return [row["id"] for row in json.loads(answer.stdout)["data"]]


def test_removing_the_users_worktree_deletes_nothing_of_a_session(layout: Layout) -> None:
    """The session starts in the linked worktree; unforced, git removes that one while the agent works."""
    work = "echo work >> file.txt; until [ -e ../../../go ]; do sleep 0.05; done; echo after > after.txt"
    with Session(layout.user.path, *SH, work, state=layout.root / ".ralph/run") as session:
        session.wait_for("iteration.started")
        layout.user.git("worktree", "remove", layout.user.path, cwd=layout.root)
        assert not layout.user.path.exists()
        (layout.root / "go").touch()
        ended = session.finish()
    assert ended.status == 0, ended.stderr
    saved = str(ended.report["saved"])
    listed = subprocess.run(
        ("git", "show", f"{saved}:file.txt", f"{saved}:after.txt"),
        cwd=layout.root,
        capture_output=True,
        check=True,
    )
    assert listed.stdout == b"one\nwork\nafter\n"


def test_base_and_directory_come_from_the_users_worktree(layout: Layout) -> None:
    """The session begins at its HEAD, in the same sub-directory, and does its work elsewhere."""
    ended = command("run", *SH, f"{PLACE}; cat feat.txt", cwd=layout.user.path / "sub")
    assert ended.status == 0, ended.stderr
    where, told, content = ended.stdout.decode().splitlines()
    assert where.startswith(f"{layout.root}/.ralph/worktrees/")
    assert (where.endswith("/sub"), told, content) == (True, str(layout.project), "feat")
    assert layout.user.git("status", "--porcelain") == ""
    assert not (layout.user.path / ".ralph").exists()


def test_all_checkouts_share_the_sessions(layout: Layout) -> None:
    """What runs in one of them is listed, resumed and reviewed in another one, and in the root."""
    work = "if [ -e x ]; then cat x; else echo 1 >> file.txt; git commit -qam one; echo x > x; fi"
    ended = command("run", *SH, work, cwd=layout.user.path)
    assert ended.status == 0, ended.stderr
    [found] = _listed(layout.user.path)
    other = Repo(layout.root.parent / "another checkout")
    layout.user.git("worktree", "add", "-q", "--detach", other.path)
    assert (_listed(layout.root), _listed(other.path)) == ([found], [found])
    layout.user.git("worktree", "remove", layout.user.path, cwd=other.path)
    resumed = command("resume", found, cwd=other.path)
    assert (resumed.status, resumed.stdout) == (0, b"x\n"), resumed.stderr
    rows = json.loads(command("review", "--json", cwd=other.path).stdout)["data"]
    assert [row["branch"] for row in rows] == [f"ralph/{found}"]
    landed = command("merge", found, "--into", "feat", cwd=other.path)
    assert landed.status == 0, landed.stderr


def test_git_and_doctor_find_the_layout_as_it_was(layout: Layout) -> None:
    """No session leaves a worktree, a lock or a problem."""
    before = layout.user.git("worktree", "list", "--porcelain")
    assert command("run", *SH, "true", cwd=layout.user.path).status == 0
    assert layout.user.git("worktree", "list", "--porcelain") == before
    checks = json.loads(command("doctor", "--json", cwd=layout.user.path).stdout)["data"]
    failing = [check["check"] for check in checks if not check["ok"] and check["check"] != "PID 1"]
    assert failing == []


def test_the_prompt_is_that_of_the_root(repo: Repo, tmp_path: Path) -> None:
    """And so is the configuration, with its approval; the linked worktree can have others."""
    repo.write("PROMPT.md", "of main\n")
    repo.write(".ralph/config.toml", "max_iterations = 1\n")
    user = _linked(repo.path, tmp_path / "feat")
    user.write("PROMPT.md", "of feat\n")
    user.write(".ralph/config.toml", "max_iterations = 7\n")
    assert command("trust", cwd=user.path).status == 0
    ended = command("run", "--", "cat", cwd=user.path)
    assert (ended.status, ended.stdout) == (0, b"of main\n"), ended.stderr


def test_the_prompt_of_a_bare_repository_is_in_the_checkout(tmp_path: Path) -> None:
    """The directory beside it is ours, and nobody commits a prompt there."""
    user = _bare(tmp_path).user
    user.write("PROMPT.md", "of feat\n")
    user.write(".ralph/config.toml", "max_iterations = 1\n")
    assert command("trust", cwd=user.path).status == 0
    ended = command("run", "--", "cat", cwd=user.path)
    assert (ended.status, ended.stdout) == (0, b"of feat\n"), ended.stderr


def test_the_rule_is_added_in_the_main_checkout(repo: Repo, tmp_path: Path) -> None:
    """There the worktrees are, so git there must ignore them."""
    user = _linked(repo.path, tmp_path / "feat")
    assert command("run", *SH, "true", cwd=user.path).status == 0
    assert (repo.path / ".gitignore").read_text() == ".ralph/worktrees/\n"
    assert not (user.path / ".gitignore").exists()


def test_an_unknown_main_checkout_is_an_error(tmp_path: Path) -> None:
    """Git itself does not know it; with the command of the hint both do."""
    layout = _separate(tmp_path)
    config = tmp_path / "git/app/config"
    layout.user.git("config", "--file", config, "--unset", "core.worktree")
    ended = command("run", *SH, PLACE, cwd=layout.user.path)
    assert (ended.status, ended.stdout) == (125, b"")
    assert f"git config --file {config} core.worktree PATH-OF-THE-MAIN-CHECKOUT" in ended.stderr


@pytest.mark.parametrize("make", [_own_configuration, _bare])
def test_a_shared_core_bare_is_an_error(tmp_path: Path, make: Callable[[Path], Layout]) -> None:
    """With extensions.worktreeConfig, git then takes each linked worktree for bare; the hint mends it."""
    layout = make(tmp_path)
    shared = Path(layout.user.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
    (shared / "config.worktree").unlink(missing_ok=True)
    layout.user.git("config", "--file", shared / "config", "extensions.worktreeConfig", "true")
    layout.user.git("config", "--file", shared / "config", "core.bare", "true")
    ended = command("run", *SH, "echo > made", cwd=layout.user.path)
    assert (ended.status, (layout.user.path / "made").exists()) == (125, False), ended.stderr
    for hint in ended.warnings[-1]["hint"].split("\n"):
        subprocess.run(("sh", "-c", hint), check=True, cwd=layout.user.path)
    assert command("run", *SH, "true", cwd=layout.user.path).status == 0
    assert layout.user.git("worktree", "list") != ""


def test_the_root_of_hidden_checkouts_is_no_checkout(tmp_path: Path) -> None:
    """An agent does not work among the worktrees; the hint names those that git lists."""
    layout = _hidden(tmp_path)
    ended = command("run", *SH, "echo > made", cwd=layout.root)
    assert (ended.status, (layout.root / "made").exists()) == (125, False)
    assert f"cd {layout.user.path}" in ended.stderr


def test_a_directory_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    """Its name is ours, its content is not."""
    layout = _bare(tmp_path)
    layout.root.mkdir()
    (layout.root / "mine").touch()
    ended = command("run", *SH, "true", cwd=layout.user.path)
    assert (ended.status, f"{layout.root} is in the way" in ended.stderr) == (6, True), ended.stderr
    assert [path.name for path in layout.root.iterdir()] == ["mine"]


def test_a_worktree_without_its_repository_says_what_is_missing(repo: Repo, tmp_path: Path) -> None:
    """As in a container that has only this directory."""
    user = _linked(repo.path, tmp_path / "feat")
    repo.path.rename(tmp_path / "elsewhere")
    ended = command("run", *SH, "echo > made", cwd=user.path)
    assert (ended.status, (user.path / "made").exists()) == (125, False)
    assert f"is a linked worktree of the repository {repo.path}/.git, which is not here" in ended.stderr
    assert f"docker run -v {repo.path}:{repo.path}" in ended.stderr


@needs_mounts
def test_a_main_checkout_that_is_not_mounted_gets_no_worktree(repo: Repo, tmp_path: Path) -> None:
    """A container has its .git and the linked worktree; what is written beside goes with the container."""
    user = _linked(repo.path, tmp_path / "feat")
    repo.path.rename(tmp_path / "elsewhere")
    with mounted(repo.path / ".git", "-t", "tmpfs", "tmpfs") as git_dir:
        shutil.copytree(tmp_path / "elsewhere/.git", git_dir, dirs_exist_ok=True)
        ended = command("run", *SH, "true", cwd=user.path)
    assert ended.status == 125
    assert f"the main checkout {repo.path} is not here, only its .git is mounted" in ended.stderr
    assert not (repo.path / ".ralph").exists()


def test_a_nested_session_gets_a_worktree_beside_the_outer_one(repo: Repo, tmp_path: Path) -> None:
    """Also if the outer one began in a linked worktree."""
    user = _linked(repo.path, tmp_path / "feat")
    inner = f"{PROGRAM} run -n 1 -- sh -c '{PLACE}' 2>/dev/null"
    where, told = run(user.path, *SH, inner).stdout.decode().splitlines()
    assert (where.rpartition("/")[0], told) == (f"{repo.path}/.ralph/worktrees", str(repo.path))
