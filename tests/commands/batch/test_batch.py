"""``ralph-wrap batch``: one session for each task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.agent_script import TRUSTED, result_line
from tests.support.sessions import command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.commands.batch.batches import Batch
    from tests.support.repo import Repo
    from tests.support.sessions import Result

ALL = ["one", "three", "two"]


def _rows(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(result.stdout)["data"]
    return rows


def test_each_task_is_done_in_a_session_of_its_own(batch: Batch) -> None:
    """With the title of the task, on a branch of its own; then nothing is to do."""
    result = batch.run("-j", "2")
    assert result.status == 0, result.stderr
    assert (batch.calls, batch.commits) == (ALL, ALL)
    assert sorted(report["title"] for report in batch.reports) == ALL
    assert len(batch.ids) == 3
    again = batch.run()
    assert (again.status, batch.calls) == (0, ALL)
    assert [event["event"] for event in again.narration] == ["batch.started", "batch.ended"]


def test_it_ends_with_the_table_of_review_and_what_to_type(batch: Batch) -> None:
    """The branches of the batch are in the table, and no others."""
    batch.repo.git("branch", "ralph/another")
    result = batch.run()
    lines = result.stdout.decode().splitlines()
    assert lines[0].startswith("TITLE")
    assert {line.split()[0] for line in lines[1:]} == {*ALL}
    people = batch.run(env={"RALPH_WRAP_LOG_FORMAT": "text"}).stderr
    (merge,) = (line for line in people.splitlines() if "ralph-wrap merge" in line)
    assert {*merge.split()[2:]} == batch.ids - {"anot"}


def test_what_the_file_has_ticked_off_is_not_done(batch: Batch) -> None:
    """A tick counts at once, and a task that is new is done."""
    batch.repo.write("TASKS.md", "- [x] one\n- [ ] two\n  with a detail\n")
    assert batch.run().status == 0
    batch.repo.write("TASKS.md", "- [ ] three\n- [x] one\n\n- [ ] two\n  with a detail\n- [ ] two\n")
    assert batch.run().status == 0
    assert batch.calls == ["three", "two", "two"]


def test_at_most_n_run_at_once(batch: Batch) -> None:
    """The first two wait for each other; the third one begins after the end of one of them."""
    batch.during('while [ "$(wc -l < "$RALPH_PROJECT/calls")" -lt 2 ]; do sleep 0.01; done\n')
    result = batch.run("-j", "2")
    assert (result.status, batch.calls) == (0, ALL)
    names = [event["event"] for event in result.narration]
    counts = [
        names[:end].count("task.started") - names[:end].count("task.ended") for end in range(len(names))
    ]
    assert max(counts) == 2


def test_a_template_has_the_task(batch: Batch, tmp_path: Path) -> None:
    """It is the prompt that the user gives; the detail is in it."""
    template = tmp_path / "template.md"
    template.write_text("{task}\n-- and nothing else {x}\n")
    batch.during('cat > "$RALPH_PROJECT/calls.$task"\n')
    assert batch.run("-f", str(template)).status == 0
    assert (batch.repo.path / "calls.two").read_text() == "\nwith a detail\n-- and nothing else {x}\n"


def test_without_a_template_the_agent_learns_the_promise(batch: Batch) -> None:
    """That of this batch."""
    batch.during('cat > "$RALPH_PROJECT/calls.$task"; echo DONE\n')
    assert batch.run("--until", "DONE").status == 0
    assert (batch.repo.path / "calls.one").read_text().endswith("this line alone:\nDONE\n")


def test_a_template_without_a_place_for_the_task_is_refused(batch: Batch) -> None:
    """Before any session starts."""
    result = batch.run("-p", "Do it.")
    assert (result.status, batch.calls) == (2, [])
    assert "the prompt has no {task}" in result.stderr


def test_the_prompt_of_quickstart_is_no_template(batch: Batch) -> None:
    """Nobody has named it, and it has no place for a task: each session gets its task alone."""
    assert command("quickstart", "--agent", "claude", "--yes", cwd=batch.repo.path).status in {0, 1}
    assert (batch.repo.path / "PROMPT.md").exists()
    (batch.repo.path / ".ralph/config.toml").unlink()
    batch.during('cat > "$RALPH_PROJECT/calls.$task"\n')
    result = batch.run()
    assert result.status == 0, result.stderr
    assert "PROMPT.md has no {task}, so the batch does not use it" in result.stderr
    assert (batch.repo.path / "calls.two").read_text().startswith("\nwith a detail\n\nCommit your work.")
    named = batch.run("-f", "PROMPT.md")
    assert (named.status, "the prompt has no {task}" in named.stderr) == (2, True)


def test_a_failed_task_is_tried_again_by_the_next_batch(batch: Batch) -> None:
    """The others are done meanwhile; its session is resumed, with its uncommitted work."""
    batch.during('echo "$task" >> left; [ "$task" != two ] || exit 7\n')
    result = batch.run("--max-failures", "1", "--json")
    assert result.status == 1
    assert [(row["title"], row["done"], row["ended_by"], row["exit_status"]) for row in _rows(result)] == [
        ("one", True, "promise", 0),
        ("two", False, "max-failures", 7),
        ("three", True, "promise", 0),
    ]
    ids = batch.ids
    batch.during("")
    again = batch.run("--json")
    assert (again.status, batch.calls, batch.ids) == (0, ["one", "three", "two", "two"], ids)
    assert [row["done"] for row in _rows(again)] == [True, True, True]
    (branch,) = (row["branch"] for row in _rows(again) if row["title"] == "two")
    assert batch.repo.git("show", f"{branch}:left") == "two"


def test_one_iteration_is_enough_if_the_user_wants_one(batch: Batch) -> None:
    """With more, only the promise says that the task is done."""
    batch.during("git commit -q --allow-empty -m x; exit 0\n")
    assert batch.run("-n", "2").status == 1
    assert batch.run("-n", "1").status == 0


def test_a_dropped_session_begins_anew(batch: Batch) -> None:
    """Nothing of it is left to go on with."""
    batch.during("exit 1\n")
    assert batch.run("--max-failures", "1").status == 1
    before = batch.ids
    for name in batch.repo.branches():
        if name.startswith("ralph/"):
            batch.repo.git("branch", "-D", name)
    batch.during("")
    assert batch.run().status == 0
    assert batch.commits == ALL
    assert not before & batch.ids or len(batch.ids) == 3


def test_a_second_batch_of_the_same_file_is_refused(batch: Batch) -> None:
    """Both would do the same tasks."""
    batch.during('while [ ! -e "$RALPH_PROJECT/calls.go" ]; do sleep 0.01; done\n')
    with batch.start() as first:
        batch.wait_for_calls(1)
        second = batch.run()
        assert second.status == 6
        assert "another process does the tasks" in second.stderr
        batch.repo.write("calls.go")
        first.communicate()
        assert first.wait() == 0
    assert batch.calls == ALL


def test_costs_are_added_up(batch: Batch) -> None:
    """Over all sessions of a task, also of an earlier batch; the limit holds for all together."""
    batch.repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{batch.agent}"]\noutput = "claude"\n')
    batch.during(result_line("no"))
    words = ("batch", "TASKS.md", "-a", "mine", "-n", "2", "--json")
    env = TRUSTED
    first = command(*words, "--batch-max-cost", "0.7", cwd=batch.repo.path, env=env)
    assert first.status == 124, first.stderr
    assert [row["cost_usd"] for row in _rows(first)] == [0.5, 0.25, 0.0]
    again = command(*words, "--batch-max-cost", "0.7", cwd=batch.repo.path, env=env)
    assert (again.status, len(batch.calls)) == (124, 3)
    assert "a higher limit" in again.stderr
    last = command(*words, cwd=batch.repo.path, env=env)
    assert [row["cost_usd"] for row in _rows(last)] == [1.0, 0.75, 0.5]


def test_the_command_to_go_on_has_a_higher_limit(batch: Batch) -> None:
    """After a reached one, typed again it would end at once; as pasted, it can spend as much again."""
    batch.repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{batch.agent}"]\noutput = "claude"\n')
    batch.during(result_line("no"))
    words = ("batch", "TASKS.md", "-a", "mine", "-n", "1", "--max-failures", "0")
    for limit in (("--batch-max-cost", "0.3"), ("--batch-max-cost=0.3",)):
        ended = command(*words, *limit, "--log-format", "text", cwd=batch.repo.path, env=TRUSTED)
        assert ended.status == 124, ended.stderr
        again = ended.stderr.splitlines()[-1].split()
        assert again[:4] == ["ralph-wrap", "batch", "TASKS.md", "-a"]
        assert "0.80" in [word.rpartition("=")[2] for word in again]
    spent = len(batch.calls)
    assert command(*again[1:], cwd=batch.repo.path, env=TRUSTED).stderr
    assert len(batch.calls) > spent


def test_without_isolation_a_task_has_no_branch(batch: Batch) -> None:
    """Two such sessions would change the same files at once."""
    refused = batch.run("--isolation", "off", "-j", "2")
    assert (refused.status, batch.calls) == (2, [])
    result = batch.run("--isolation", "off", "--json")
    assert result.status == 0, result.stderr
    assert [(row["branch"], row["done"]) for row in _rows(result)] == [(None, True)] * 3
    assert batch.ids == set()


def test_without_a_commit_no_session_starts(repo: Repo, batch: Batch) -> None:
    """No session falls back to the project itself."""
    repo.git("checkout", "-q", "--orphan", "empty")
    result = batch.run()
    assert (result.status, batch.calls) == (125, [])
    assert "git finds no commit at HEAD (branch empty)" in result.stderr
