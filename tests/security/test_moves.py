"""What moves files does not run the programs that an agent has put into the shared ``.git``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.config.approvals import answered
from tests.support.merging import branch
from tests.support.repo import Repo
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.sessions import Result

OFF = {"RALPH_TRUST": "1"}
"""With this variable the user has approved everything: the defence is off."""


@pytest.fixture
def proof(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> Path:
    """Return a file that a program creates which the repository names in each possible way."""
    made = tmp_path / "executed"
    evil = script(f"echo ran >> {made}; exec cat")
    repo.write("file.txt", "one\ntwo\nthree\n")
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("base")
    branch(repo, "aaaa", {"file.txt": "ONE\ntwo\nthree\n", "new.txt": "new\n"})
    branch(repo, "aaaa-wip", {"saved.txt": "saved\n"}, base="ralph/aaaa")
    repo.write("file.txt", "one\ntwo\nTHREE\n")
    repo.commit("mine")
    (repo.path / ".git/info/attributes").write_text("* filter=evil merge=evil\n")
    config = repo.path / ".git/config"
    included = repo.path / ".git/more"
    config.write_text(f"{config.read_text()}[include]\n\tpath = more\n")
    included.write_text(
        f'[filter "evil"]\n\tclean = {evil}\n\tsmudge = {evil}\n\trequired = true\n'
        f'[merge "evil"]\n\tdriver = "echo ran >> {made}; false"\n[gpg]\n\tprogram = {evil}\n'
    )
    return made


COMMANDS: Mapping[str, Callable[[Repo, Mapping[str, str]], Result]] = {
    "run": lambda repo, env: run(repo.path, "-n", "1", "--", "sh", "-c", "echo new > saved", env=env),
    "merge": lambda repo, env: command("merge", "aaaa", cwd=repo.path, env=env),
    "apply": lambda repo, env: command("apply", "aaaa", cwd=repo.path, env=env),
    "worktree create": lambda repo, env: command("worktree", "create", "some task", cwd=repo.path, env=env),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_program_of_the_repository_runs(repo: Repo, proof: Path, name: str) -> None:
    """Filters by an include and info/attributes, row 2 of the attacks: the command refuses its work."""
    ended = COMMANDS[name](repo, {})
    assert (ended.status != 0, proof.exists()) == (True, False), ended.stderr
    assert "applies to .gitignore, file.txt" in ended.stderr + ended.stdout.decode()


def test_no_merge_driver_of_the_repository_runs(repo: Repo, proof: Path) -> None:
    """Row 3 of the attacks: git merges the file as text."""
    (repo.path / ".git/info/attributes").write_text("* merge=evil\n")
    ended = COMMANDS["merge"](repo, {})
    assert (ended.status, proof.exists()) == (0, False), ended.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_attack_succeeds_without_the_defence(repo: Repo, proof: Path, name: str) -> None:
    """The same commands, after an approval of everything."""
    COMMANDS[name](repo, OFF)
    assert proof.exists()


def test_work_is_saved_without_a_filter_that_the_repository_requires(repo: Repo, proof: Path) -> None:
    """The agent puts it there; with it in effect, git would add nothing, and the worktree would be kept."""
    (repo.path / ".git/info/attributes").unlink()
    attack = f"echo new > saved; echo '* filter=evil' > {repo.path}/.git/info/attributes"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", attack)
    assert (ended.report["kept"], proof.exists()) == (None, False)
    assert repo.git("show", f"{ended.report['saved']}:saved") == "new"


def test_the_configuration_of_one_worktree_runs_nothing(repo: Repo, proof: Path) -> None:
    """An agent writes config.worktree of the main checkout; the merge would see other files, and refuses."""
    included = repo.path / ".git/more"
    config = repo.path / ".git/config"
    config.write_text(config.read_text().replace("[include]", "[extensions]\n\tworktreeConfig = true\n[x]"))
    included.rename(repo.path / ".git/config.worktree")
    ended = command("merge", "aaaa", cwd=repo.path)
    assert (ended.status, proof.exists()) == (6, False), ended.stderr
    repo.git("status")
    repo.path.joinpath("file.txt").touch()
    repo.git("add", "--renormalize", ".")
    assert proof.exists()  # plain git obeys it


@pytest.fixture
def hub(repo: Repo, tmp_path: Path) -> Repo:
    """Return the repository that the project's remote is; branch aaaa has a commit."""
    path = tmp_path / "hub.git"
    path.mkdir()
    made = Repo(path)
    made.git("init", "-q", "--bare")
    repo.git("remote", "add", "origin", path)
    repo.write(".ralph/config.toml", 'push = "origin"\n')
    assert command("trust", cwd=repo.path).status == 0
    branch(repo, "aaaa", {"new.txt": "new\n"})
    return made


REDIRECTIONS = {
    "core.sshCommand": "{evil}",
    "remote.origin.pushurl": "{other}",
    "remote.origin.receivepack": "{evil}",
    "remote.origin.url": "ext::{evil}",
    "remote.origin.vcs": "evil",
    "url.{other}.insteadOf": "{hub}",
}


@pytest.mark.parametrize("key", REDIRECTIONS)
def test_no_push_goes_where_the_repository_leads_it(
    repo: Repo, hub: Repo, tmp_path: Path, script: Callable[[str], str], key: str
) -> None:
    """Row 6: neither a pull request nor a session pushes, and the message names the key."""
    other, made = tmp_path / "other.git", tmp_path / "executed"
    repo.git("clone", "-q", "--bare", hub.path, other)
    words = {"evil": script(f"touch {made}"), "other": other, "hub": hub.path}
    repo.git("config", key.format(**words), REDIRECTIONS[key].format(**words))
    for ended in (
        command("review", "--pr", "aaaa", "--despite-tampering", cwd=repo.path),
        command("run", "-n", "1", "--", "true", cwd=repo.path),
    ):
        assert (ended.status, "which you have not approved" in ended.stderr) == (125, True), ended.stderr
    assert not made.exists()
    assert Repo(other).branches() == []


def test_a_push_asks_for_its_address(repo: Repo, hub: Repo) -> None:
    """An agent may have changed it; without a terminal nothing is sent."""
    ended = command("review", "--pr", "aaaa", cwd=repo.path)
    assert (ended.status, f"you have not approved a push to {hub.path}" in ended.stderr) == (125, True)
    assert hub.branches() == []


def test_plain_git_pushes_where_the_repository_leads_it(repo: Repo, hub: Repo, tmp_path: Path) -> None:
    """The attack of a pushurl, without the defence."""
    other = tmp_path / "other.git"
    repo.git("clone", "-q", "--bare", hub.path, other)
    repo.git("config", "remote.origin.pushurl", other)
    commit = ("git", "commit", "-q", "--allow-empty", "-m", "work")
    ended = run(repo.path, "-n", "1", "--", *commit, env=OFF)
    assert (len(Repo(other).branches()), hub.branches()) == (1, []), ended.stderr


def test_a_work_tree_elsewhere_gets_nothing(repo: Repo, home: Path) -> None:
    """Row 21: core.worktree leads to HOME; plain git believes it, and ralph-wrap writes nothing there."""
    repo.git("config", "core.worktree", home)
    assert repo.git("rev-parse", "--show-toplevel") == str(home)
    before = sorted(path for path in home.rglob("*") if "state" not in path.parts)
    ended = command("run", "-n", "1", "--", "true", cwd=repo.path)
    assert (ended.status, "core.worktree of " in ended.stderr) == (9, True), ended.stderr
    assert sorted(path for path in home.rglob("*") if "state" not in path.parts) == before


def test_an_approval_counts_for_exactly_these_lines(repo: Repo, proof: Path) -> None:
    """One more line, and all are off again; each that is off is named once, with its meaning."""
    repo.write(".gitattributes", "*.txt filter=evil\n")
    (named,) = [
        event
        for event in command("merge", "aaaa", cwd=repo.path).warnings
        if event["event"] == "repository.programs_off"
    ]
    assert named["message"] == (
        "git ignores filter.evil.clean, filter.evil.smudge, filter.evil.required, merge.evil.driver,"
        " gpg.program of .git/config, which you have not approved; *.txt, * stays as git stores it;"
        " git merges * as text"
    )
    assert answered(repo.path)["repository_approved"] is True
    assert command("trust", "--show", "--json", cwd=repo.path).status == 0
    with (repo.path / ".git/more").open("a") as file:
        file.write('[filter "evil"]\n\tprocess = cat\n')
    shown = json.loads(command("trust", "--show", "--json", cwd=repo.path).stdout)["data"]
    assert shown["repository_approved"] is False
    assert not proof.exists()


def test_an_approved_filter_works(repo: Repo, proof: Path) -> None:
    """The user's word makes it a filter as any other."""
    answered(repo.path)
    assert run(repo.path, "-n", "1", "--", "true").status == 0
    assert proof.exists()
