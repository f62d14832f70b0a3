"""A session on a remote: it goes on on another machine, and no two machines run it.

Two clones of one bare repository are the machines.
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from ralph_wrap.state.remote_refs import tracking
from tests.support.git_shim import shim_git
from tests.support.machines import claim_of, killed, refs
from tests.support.repo import Repo
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

SH = ("--", "sh", "-c")
MIRRORED = ("--remote", "origin")
TRUST = {"RALPH_TRUST": "1"}
QUICK = 'remote_beat = "200ms"\n'


def agent_ids(remote: Repo) -> list[str]:
    """Return the agent ids that have a claim."""
    return [ref.rpartition("/")[2] for ref in refs(remote) if "/claims/" in ref]


def test_a_session_goes_on_on_another_machine(repo: Repo, remote: Repo, other: Repo) -> None:
    """Commits, saved work, its index and its prompt are where they were; then the first machine has all."""
    script = "cat > prompt; git add prompt; git commit -qm one; echo staged > s; git add s; echo loose > l"
    first = run(repo.path, *MIRRORED, "-n", "1", "-p", "the prompt", *SH, script)
    assert first.status == 0, first.stderr
    agent_id = first.report["id"]
    assert claim_of(remote, agent_id)["state"] == "stopped"
    fetched = command("fetch", "--json", cwd=other.path)
    assert [entry["action"] for entry in json.loads(fetched.stdout)["data"]] == ["new"]
    listed = json.loads(command("review", "--json", cwd=other.path).stdout)["data"]
    assert [branch["title"] for branch in listed] == ["the prompt"]
    look = "cat > prompt2; git diff --cached --name-only > staged; cat l s prompt prompt2 > all; git add all"
    other.write(".ralph/config.toml", '[agents.shell]\ncommand = ["sh", "-c", "eval \\"$LOOK\\""]\n')
    second = command(
        *("resume", agent_id, *MIRRORED, "-n", "1", "--agent", "shell"),
        cwd=other.path,
        env=TRUST | {"LOOK": look},
    )
    assert second.status == 0, second.stderr
    assert other.show(f"ralph/{agent_id}-wip:all") == b"loose\nstaged\nthe promptthe prompt"
    assert other.show(f"ralph/{agent_id}-wip:staged") == b"s\n"
    assert claim_of(remote, agent_id)["epoch"] == 2
    back = json.loads(command("fetch", "--json", cwd=repo.path).stdout)["data"]
    assert [entry["action"] for entry in back] == ["moved"]
    assert repo.git("rev-parse", f"ralph/{agent_id}-wip") == other.git("rev-parse", f"ralph/{agent_id}-wip")


def test_a_session_that_went_on_elsewhere_does_not_go_on_here(repo: Repo, remote: Repo, other: Repo) -> None:
    """The remote says so, before an agent starts."""
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo x > x").report["id"]
    gone_on = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=TRUST)
    assert gone_on.status == 0, gone_on.stderr
    before = refs(remote)
    refused = command("resume", agent_id, cwd=repo.path)
    assert refused.status == 6, refused.stderr
    assert f"ralph-wrap resume {agent_id} --remote origin" in refused.stderr
    assert refs(remote) == before


def test_a_fetched_session_needs_its_remote(repo: Repo, remote: Repo, other: Repo) -> None:
    """Without it, two machines could run it."""
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo x > x").report["id"]
    assert command("fetch", cwd=other.path).status == 0
    refused = command("resume", agent_id, cwd=other.path, env=TRUST)
    assert "--remote origin" in refused.stderr
    assert refused.status != 0
    assert claim_of(remote, agent_id)["epoch"] == 1


def test_a_killed_machine_loses_nothing_that_was_mirrored(repo: Repo, remote: Repo, other: Repo) -> None:
    """The snapshot within the iteration is there, and its session goes on after three silent beats."""
    repo.write(".ralph/config.toml", QUICK)
    script = f"echo $$ > {repo.path.parent}/agent.pid; echo work > made; exec sleep 1000"
    agent_id = killed(repo, script, until="made")
    assert claim_of(remote, agent_id)["state"] == "running"
    seen = command("fetch", "--json", cwd=other.path)
    assert json.loads(seen.stdout)["data"][0]["state"] == "running"

    def is_dead() -> bool:
        again = command("fetch", "--json", cwd=other.path)
        return bool(json.loads(again.stdout)["data"][0]["state"] == "dead")

    eventually(is_dead, "a fetch that finds the same claim after three beats")
    [row] = json.loads(command("review", "--json", cwd=other.path).stdout)["data"]
    assert row["ended_by"] == "killed"
    other.write(".ralph/config.toml", '[agents.done]\ncommand = ["sh", "-c", "cat > p; git add p"]\n')
    resumed = command(
        "resume", agent_id, *MIRRORED, "-n", "1", "-a", "done", "-p", "x", cwd=other.path, env=TRUST
    )
    assert resumed.status == 0, resumed.stderr
    snapshots = other.git("for-each-ref", "--format=%(objectname)", f"refs/ralph/snapshots/{agent_id}/")
    kept = [other.git("ls-tree", "-r", "--name-only", oid).splitlines() for oid in snapshots.splitlines()]
    assert any("made" in names for names in kept)
    assert claim_of(remote, agent_id)["state"] == "stopped"


def test_a_running_session_is_not_taken_over(repo: Repo, remote: Repo, other: Repo) -> None:
    """Its claim moves while the other machine watches it."""
    repo.write(
        ".ralph/config.toml", 'remote_beat = "4s"\n'
    )  # three of them outlast a pause of a busy machine
    with Session(repo.path, *MIRRORED, *SH, "exec sleep 1000") as session:
        session.wait_for("mirror.pushed")
        agent_id = session.directory.name.rpartition("-")[2]
        refused = command("resume", agent_id, *MIRRORED, cwd=other.path, env=TRUST)
        assert (refused.status, "--take-over" in refused.stderr) == (6, True), refused.stderr
        session.send(signal.SIGTERM)
        ended = session.finish()
    assert "mirror.fenced" not in ended.names
    assert claim_of(remote, agent_id)["epoch"] == 1


def _moves_at_fetch(number: int, repo: Repo, remote: Repo, ref: str, oid: str) -> dict[str, str]:
    """Return an environment whose git moves a ref of the remote just before its fetch with this number."""
    move = f'env -i "$REAL" --git-dir={remote.path} update-ref {ref} {oid}'
    seen = repo.path.parent / "fetched"
    cases = f'*" fetch "*) echo >> {seen}; [ "$(wc -l < {seen})" != {number} ] || {move} ;;'
    return TRUST | {"PATH": shim_git(repo.path.parent / "shim", cases)}


def test_a_session_that_moves_its_claim_at_the_last_moment_is_not_taken_over(
    repo: Repo, remote: Repo, other: Repo
) -> None:
    """It was stopped when the other machine fetched it, and runs again before that machine claims it."""
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo x > x").report["id"]
    alive = repo.path.parent / "alive"
    alive.write_text(json.dumps(claim_of(remote, agent_id) | {"state": "running", "sequence": 1000}))
    blob = remote.git("hash-object", "-w", str(alive))
    moves = _moves_at_fetch(3, repo, remote, f"refs/ralph/claims/{agent_id}", blob)
    refused = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=moves)
    assert (refused.status, "--remote origin" in refused.stderr) == (6, True), refused.stderr
    assert refs(remote)[f"refs/ralph/claims/{agent_id}"] == blob


def test_saved_work_comes_with_the_claim_that_names_it(repo: Repo, remote: Repo, other: Repo) -> None:
    """A server that lists its refs during a push can show the new claim without the saved work."""
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo x >> x").report["id"]
    wip = f"refs/heads/ralph/{agent_id}-wip"
    saved = remote.git("rev-parse", wip)
    remote.git("update-ref", "-d", wip)
    comes = _moves_at_fetch(2, repo, remote, wip, saved)
    resumed = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=comes)
    assert resumed.status == 0, resumed.stderr
    assert other.show(f"ralph/{agent_id}-wip:x") == b"x\nx\n"


def test_saved_work_comes_although_an_attempt_before_has_seen_it(
    repo: Repo, remote: Repo, other: Repo
) -> None:
    """That attempt fetched it, and ended before it had a branch here. It looked like dropped work."""
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo x >> x").report["id"]
    wip = f"refs/heads/ralph/{agent_id}-wip"
    saved = remote.git("rev-parse", wip)
    remote.git("update-ref", "-d", wip)
    assert command("fetch", cwd=other.path).status == 0
    remote.git("update-ref", wip, saved)
    other.git("fetch", "--quiet", "origin", f"+{wip}:{tracking('origin', wip)}")
    resumed = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=TRUST)
    assert resumed.status == 0, resumed.stderr
    assert other.show(f"ralph/{agent_id}-wip:x") == b"x\nx\n"


def test_a_fetch_with_an_older_branch_than_its_claim_is_repeated(
    repo: Repo, remote: Repo, other: Repo
) -> None:
    """A server that lists its refs during a push can show the new claim with the old branch.

    A session that went on from the old branch would leave the new commits beside it.
    """
    script = "echo x >> x; git add x; git commit -qm one"
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, script).report["id"]
    branch = f"refs/heads/ralph/{agent_id}"
    newest = remote.git("rev-parse", branch)
    remote.git("update-ref", branch, f"{newest}~")
    moves = _moves_at_fetch(3, repo, remote, branch, newest)
    refused = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=moves)
    assert (refused.status, "in this moment" in refused.stderr) == (6, True), refused.stderr
    assert claim_of(remote, agent_id)["epoch"] == 1
    again = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=TRUST)
    assert again.status == 0, again.stderr
    assert not [ref for ref in refs(remote) if "/rescue/" in ref]
    assert remote.git("merge-base", newest, branch) == newest


def test_a_session_whose_claim_is_gone_is_fenced(repo: Repo, remote: Repo, other: Repo) -> None:
    """It ends its agent, and its work is on the remote beside that of the machine that took it over."""
    repo.write(".ralph/config.toml", QUICK)
    script = "echo first > mine; echo $$ > ../../../agent.pid; exec sleep 1000"
    with Session(repo.path, *MIRRORED, *SH, script) as session:
        session.wait_for("mirror.pushed", 2)
        agent_id = session.directory.name.rpartition("-")[2]
        taken = command(
            *("resume", agent_id, *MIRRORED, "--take-over", "-n", "1"),
            cwd=other.path,
            env=TRUST | {"RALPH_WRAP_ITERATION_TIMEOUT": "1s"},
        )
        assert claim_of(remote, agent_id)["epoch"] == 2, taken.stderr
        ended = session.finish()
    assert (ended.report["ended_by"], "mirror.fenced" in ended.names) == ("stop", True)
    rescued = [ref for ref in refs(remote) if ref.startswith(f"refs/ralph/rescue/{agent_id}/")]
    names = [remote.git("ls-tree", "-r", "--name-only", ref).splitlines() for ref in rescued]
    assert any("mine" in found for found in names), rescued
    assert claim_of(remote, agent_id)["session"] != ended.report["session"]


def test_a_remote_that_is_down_costs_no_iteration(repo: Repo, remote: Repo) -> None:
    """The session starts without it, and brings everything once it is back."""
    aside = remote.path.rename(remote.path.with_name("aside.git"))
    gate = repo.path.parent / "gate"
    repo.write(".ralph/config.toml", QUICK)
    script = f"echo x > x; until [ -e {gate} ]; do sleep 0.05; done"
    with Session(repo.path, *MIRRORED, "-n", "1", *SH, script) as session:
        session.wait_for("mirror.failed")
        aside.rename(remote.path)
        gate.touch()
        ended = session.finish()
    assert (ended.status, ended.report["iterations"]) == (0, 1), ended.stderr
    agent_id = ended.report["id"]
    assert claim_of(remote, agent_id)["state"] == "stopped"
    assert remote.show(f"refs/heads/ralph/{agent_id}-wip:x") == b"x\n"


def test_a_remote_that_stays_down_is_named_at_the_end(repo: Repo, remote: Repo) -> None:
    """The end says what is missing there, and gives the command that brings it; the work is here."""
    hook = remote.path / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho the quota is used up >&2\nexit 1\n")
    hook.chmod(0o755)
    repo.write(".ralph/config.toml", QUICK)
    with Session(repo.path, *MIRRORED, "-n", "1", *SH, "echo x > x") as session:
        session.wait_for("mirror.failed", 2)  # at the start, and after the iteration
        session.press_ctrl_c_until("mirror.incomplete")
        ended = session.finish()
    missing = [event for event in ended.events if event["event"] == "mirror.incomplete"]
    assert len(missing) == 1
    agent_id = ended.report["id"]
    assert f"refs/heads/ralph/{agent_id}-wip" in json.dumps(missing)
    assert repo.show(f"ralph/{agent_id}-wip:x") == b"x\n"
    assert refs(remote) == {}


def test_ids_are_unique_on_the_remote(repo: Repo, remote: Repo) -> None:
    """A session takes no id that a session of another machine has there."""
    from ralph_wrap.session.remote.claiming import taken_at  # noqa: PLC0415 -- the module is loaded late
    from tests.git.repositories import git_in  # noqa: PLC0415

    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "true").report["id"]
    assert agent_ids(remote) == [agent_id]
    assert taken_at(git_in(repo.path), "origin", agent_id) == {agent_id}
    assert taken_at(git_in(repo.path), "origin", "") == {agent_id}
    other = f"{(int(agent_id, 16) + 1) % 65536:04x}"
    assert taken_at(git_in(repo.path), "origin", other) == set()


def test_an_agent_that_cannot_start_leaves_no_claim(repo: Repo, remote: Repo) -> None:
    """There is nothing to go on with."""
    failed = run(repo.path, *MIRRORED, "-n", "1", "--", "./missing.sh")
    assert failed.status == 127
    assert refs(remote) == {}


def test_work_of_others_on_the_branch_stays(repo: Repo, remote: Repo) -> None:
    """Commits that another program pushed to the session's branch are not replaced."""
    repo.write(".ralph/config.toml", QUICK)
    gate = repo.path.parent / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.05; done; git commit -q --allow-empty -m ours"
    with Session(repo.path, *MIRRORED, "-n", "1", *SH, script) as session:
        session.wait_for("mirror.pushed")
        agent_id = session.directory.name.rpartition("-")[2]
        branch = f"refs/heads/ralph/{agent_id}"
        tree = repo.git("rev-parse", "main^{tree}")
        theirs = repo.git("commit-tree", tree, "-p", "main", "-m", "theirs")
        repo.git("push", "-q", "origin", f"{theirs}:{branch}", "--force")
        gate.touch()
        ended = session.finish()
    assert refs(remote)[branch] == theirs
    rescued = {oid for ref, oid in refs(remote).items() if ref.startswith("refs/ralph/rescue/")}
    assert repo.git("rev-parse", f"ralph/{agent_id}") in rescued, ended.stderr


def test_saved_work_is_put_back_once(repo: Repo, remote: Repo, other: Repo) -> None:
    """The machine that goes on commits it. Then it is a snapshot on each machine, and saved work on none."""
    first = run(
        repo.path, *MIRRORED, "-n", "1", *SH, "[ -e x ] && git add x && git commit -qm x || echo x > x"
    )
    agent_id = first.report["id"]
    saved = repo.git("rev-parse", f"ralph/{agent_id}-wip")
    second = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=TRUST)
    assert second.status == 0, second.stderr
    assert f"refs/heads/ralph/{agent_id}-wip" not in refs(remote)
    assert saved in refs(remote).values()
    assert command("fetch", cwd=repo.path).status == 0
    assert repo.branches() == ["main", f"ralph/{agent_id}"]
    assert repo.git("for-each-ref", "--contains", saved, "refs/ralph/snapshots/")
    assert repo.show(f"ralph/{agent_id}:x") == b"x\n"


def test_taking_over_leaves_the_snapshots_on_the_remote(repo: Repo, remote: Repo, other: Repo) -> None:
    """The machine that goes on may die before its first push; the remote then has the only copy."""
    repo.write(".ralph/config.toml", QUICK)
    pid = repo.path.parent / "agent.pid"
    agent_id = killed(repo, f"echo work > work; echo $$ > {pid}; exec sleep 600", until="work")
    seen = other.path.parent / "seen"
    look = f"git -C {remote.path} for-each-ref refs/ralph/snapshots/{agent_id} > {seen}"
    other.write(".ralph/config.toml", '[agents.shell]\ncommand = ["sh", "-c", "eval \\"$LOOK\\""]\n')
    second = command(
        *("resume", agent_id, *MIRRORED, "--take-over", "-n", "1", "--agent", "shell", "-p", "go on"),
        cwd=other.path,
        env=TRUST | {"LOOK": look},
    )
    assert second.status == 0, second.stderr
    assert seen.read_text()


def test_a_fetch_keeps_what_a_rewritten_branch_had(repo: Repo, remote: Repo, other: Repo) -> None:
    """The remote may have the new commits only, so the old one gets a snapshot here."""
    first = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo a > a; git add a; git commit -qm a")
    agent_id = first.report["id"]
    command("fetch", cwd=other.path)
    old = other.git("rev-parse", f"ralph/{agent_id}")
    new = remote.git("commit-tree", "-p", "main", "-m", "rewritten", "main^{tree}")
    remote.git("update-ref", f"refs/heads/ralph/{agent_id}", new)
    command("fetch", cwd=other.path)
    assert other.git("rev-parse", f"ralph/{agent_id}") == new
    assert other.git("rev-parse", f"refs/ralph/snapshots/{agent_id}/commit-1") == old


def test_a_prompt_file_that_is_not_committed_goes_along(repo: Repo, remote: Repo, other: Repo) -> None:
    """The other machine needs no file, and its user approves the text; a committed file stays a file."""
    repo.write("notes.txt", "do this\nand that\n")
    got = repo.path.parent / "got"
    first = run(repo.path, *MIRRORED, "-n", "1", "-f", "notes.txt", *SH, f"cat > {got}; echo > x")
    agent_id = first.report["id"]
    assert claim_of(remote, agent_id)["start"]["options"]["prompt"] == "do this\nand that\n"
    got.unlink()
    refused = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path)
    assert (refused.status, "was not started by you on this machine" in refused.stderr) == (125, True)
    second = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=other.path, env=TRUST)
    assert (second.status, got.read_text()) == (0, "do this\nand that\n"), second.stderr
    repo.commit("the prompt")
    third = run(repo.path, *MIRRORED, "-n", "1", "-f", "notes.txt", *SH, "echo > x")
    options = claim_of(remote, third.report["id"])["start"]["options"]
    assert (options["prompt_file"], "prompt" in options) == ("notes.txt", False)


def test_a_branch_that_a_user_named_comes_with_the_others(
    repo: Repo, remote: Repo, other: Repo, tmp_path: Path
) -> None:
    """After the first fetch its name is known, and one git fetch brings all."""
    script = "git commit -q --allow-empty -m work"
    run(repo.path, *MIRRORED, "-n", "1", "--branch", "feature/one", *SH, script)
    assert command("fetch", cwd=other.path).status == 0
    assert other.git("rev-parse", "feature/one") == remote.git("rev-parse", "feature/one")
    newer = remote.git("commit-tree", "main^{tree}", "-p", "feature/one", "-m", "newer")
    remote.git("update-ref", "refs/heads/feature/one", newer)
    count = tmp_path / "count"
    path = shim_git(tmp_path / "shim", f'*" fetch "*) echo >> {count} ;;')
    assert command("fetch", cwd=other.path, env={"PATH": path}).status == 0
    assert (other.git("rev-parse", "feature/one"), count.read_text()) == (newer, "\n")


def test_a_session_pushes_its_branch_elsewhere_too(repo: Repo, remote: Repo) -> None:
    """With push and remote it keeps itself on one remote, and pushes the branch alone to another."""
    second = repo.path.parent / "second.git"
    repo.git("clone", "-q", "--bare", str(remote.path), str(second))
    repo.git("remote", "add", "second", str(second))
    repo.git("remote", "add", "same", str(remote.path))
    repo.write(".ralph/config.toml", 'push = "second"\n')
    environ = TRUST
    script = "git commit -q --allow-empty -m work; echo loose > loose"
    ended = run(repo.path, *MIRRORED, "-n", "1", *SH, script, env=environ)
    assert ended.status == 0, ended.stderr
    branch = ended.report["branch"]
    assert Repo(second).git("rev-parse", branch) == remote.git("rev-parse", branch)
    assert [*refs(Repo(second))] == [f"refs/heads/{branch}"]
    repo.write(".ralph/config.toml", 'push = "same"\n')
    refused = run(repo.path, *MIRRORED, "-n", "1", *SH, script, env=environ)
    assert (refused.status, "lead to the same repository" in refused.stderr) == (2, True), refused.stderr
