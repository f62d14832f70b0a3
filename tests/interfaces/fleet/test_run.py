"""``fleet run``: the spec on the remote, and one Job, whose manifest kubectl gets."""

from __future__ import annotations

import json
import os
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.errors import UsageError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet.kubernetes.cluster import ClusterConfig, parse_cluster
from ralph_wrap.interfaces.fleet.kubernetes.job import job_manifest
from ralph_wrap.interfaces.fleet.spec import FleetSpec, read_spec
from tests.support.sessions import Result, command

if TYPE_CHECKING:
    from tests.interfaces.fleet.runs import FleetRun

TRUST = {"RALPH_TRUST": "1"}
CONFIG = """\
image: registry.example/agents:1
context: prod
namespace: agents
git_credential: ralph-git
secrets: [claude-key]
grace: 90s
"""


def fleet(run: FleetRun, *arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run a command of the group in the project, with a kubectl that records what it gets."""
    return command("fleet", *arguments, cwd=run.repo.path, env=TRUST | run.kubectl() | (env or {}))


def test_a_run_is_a_spec_and_a_job(fleet_run: FleetRun) -> None:
    """The Job pins the commit on the remote, and its workers find what the user has typed."""
    fleet_run.repo.write(".ralph/fleet.yaml", CONFIG)
    fleet_run.repo.write("TASK.md", "the prompt\nof a file\n")
    started = fleet(
        fleet_run, "run", "--count", "3", "-j", "2", "-f", "TASK.md", "-n", "5", "--", "./agent.sh", "-x"
    )
    assert started.status == 0, started.stderr
    name = started.stdout.decode().strip()
    [call] = fleet_run.calls()
    assert call["arguments"][:5] == ["--context", "prod", "--namespace", "agents", "create"]
    job = json.loads(call["stdin"])
    variables = _variables(job)
    commit = fleet_run.refs()[f"refs/ralph/fleet/{name}/spec"]
    assert (variables["RALPH_FLEET_SPEC"], variables["RALPH_FLEET_RUN"]) == (commit, name)
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (3, 2)
    spec, base = read_spec(Git(fleet_run.repo.path, git_environment(os.environ)), commit)
    assert spec.options == {"max_iterations": "5", "prompt": "the prompt\nof a file\n"}
    assert spec.command == ("./agent.sh", "-x")
    assert base == fleet_run.repo.git("rev-parse", "HEAD")


@pytest.mark.parametrize("address", ["../remote.git", "host:project.git", "https://git.example/project.git"])
def test_an_address_that_is_a_path_is_absolute(fleet_run: FleetRun, address: str) -> None:
    """A worker stands elsewhere. Every other address stays as it is."""
    fleet_run.repo.git("remote", "set-url", "origin", address)
    printed = fleet(fleet_run, "run", "--count", "1", "--host", "one", "--dry-run", "--", "true")
    expected = str(fleet_run.remote.path) if address.startswith("..") else address
    assert f"RALPH_FLEET_REMOTE={expected} " in printed.stdout.decode(), printed.stderr


def test_each_task_is_a_session(fleet_run: FleetRun) -> None:
    """Its prompt comes from the template, and tasks that are done get none."""
    fleet_run.repo.write(".ralph/fleet.yaml", CONFIG)
    fleet_run.repo.write("tasks.md", "- [ ] one\n  more\n- [x] old\n- [ ] two\n")
    started = fleet(fleet_run, "run", "--tasks", "tasks.md", "-p", "Do this: {task}", "-a", "claude")
    assert started.status == 0, started.stderr
    commit = fleet_run.refs()[f"refs/ralph/fleet/{started.stdout.decode().strip()}/spec"]
    spec, _ = read_spec(Git(fleet_run.repo.path, git_environment(os.environ)), commit)
    assert [spec.options_of(index)["name"] for index in range(spec.size)] == ["one", "two"]
    assert spec.options_of(0)["prompt"] == "Do this: one\n\nmore"
    assert spec.options["agent"] == "claude"


def test_a_dry_run_prints_the_manifest_and_starts_nothing(fleet_run: FleetRun) -> None:
    """No ref moves, and kubectl is not called."""
    fleet_run.repo.write(".ralph/fleet.yaml", CONFIG)
    before = fleet_run.refs()
    printed = fleet(fleet_run, "run", "--count", "2", "--dry-run", "--", "true")
    assert printed.status == 0, printed.stderr
    assert json.loads(printed.stdout)["kind"] == "Job"
    assert (fleet_run.refs(), fleet_run.calls()) == (before, [])


def test_pods_use_the_address_that_they_reach(fleet_run: FleetRun) -> None:
    """It may be another one than that of origin, which gets the spec."""
    address = "http://git/project.git"
    fleet_run.repo.write(".ralph/fleet.yaml", f"{CONFIG}remote: {address}\n")
    started = fleet(fleet_run, "run", "--count", "2", "--", "true")
    assert started.status == 0, started.stderr
    name = started.stdout.decode().strip()
    [call] = fleet_run.calls()
    assert _variables(json.loads(call["stdin"]))["RALPH_FLEET_REMOTE"] == address
    prefix = f"refs/ralph/fleet/{name}/"
    assert {*fleet_run.refs(prefix)} == {f"{prefix}spec"}


def test_the_pod_is_locked_down() -> None:
    """No token, no root, no writable root file system, no secret as an argument; lost nodes are replaced."""
    config = parse_cluster({"image": "i", "git_credential": "g", "secrets": ["s"], "node_timeout": "20s"})
    job = job_manifest(config, FleetSpec("r1", 5, parallel=9), "a" * 40, "https://git.example/p.git")
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert job["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"
    assert "podFailurePolicy" not in job["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["command"] == ["ralph-wrap", "fleet", "work"]
    assert container["envFrom"] == [{"secretRef": {"name": "s"}}]
    assert {entry["tolerationSeconds"] for entry in pod["tolerations"]} == {20}
    paths = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert _variables(job)["RALPH_FLEET_GIT_CREDENTIAL"].rpartition("/")[0] in paths
    assert {_variables(job)[name] for name in ("HOME", "TMPDIR", "RALPH_FLEET_WORKSPACE")} <= paths


def test_fields_of_the_pod_are_merged_last() -> None:
    """Tables by key, entries of a list by name or after ours; anything else is replaced."""
    mount = {"name": "key", "mountPath": "/etc/key"}
    beside = {"name": "beside", "image": "b"}
    agent = {
        "name": "ralph",
        "resources": {"limits": {"memory": "4Gi"}},
        "volumeMounts": [mount],
        "securityContext": {"capabilities": {"drop": ["NET_RAW"]}},
    }
    toleration = {"key": "agents", "operator": "Exists"}
    extra = {
        "nodeSelector": {"pool": "agents"},
        "tolerations": [toleration],
        "containers": [agent, beside],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
        "terminationGracePeriodSeconds": 7,
    }

    def pod(**more: Any) -> dict[str, Any]:
        config = parse_cluster({"image": "i"} | more)
        job = job_manifest(config, FleetSpec("r1", 1), "a" * 40, "https://git.example/p.git")
        found: dict[str, Any] = job["spec"]["template"]["spec"]
        return found

    before, after = pod(), pod(pod=extra)
    [ours], [merged, added] = before["containers"], after["containers"]
    assert (after["nodeSelector"], after["terminationGracePeriodSeconds"]) == ({"pool": "agents"}, 7)
    assert after["tolerations"] == [*before["tolerations"], toleration]
    assert {**merged, "volumeMounts": ours["volumeMounts"], "securityContext": ours["securityContext"]} == (
        ours | {"resources": {"limits": {"memory": "4Gi"}}}
    )
    assert merged["volumeMounts"] == [*ours["volumeMounts"], mount]
    assert merged["securityContext"] == ours["securityContext"] | {"capabilities": {"drop": ["NET_RAW"]}}
    assert added == beside
    assert [volume for volume in after["volumes"] if volume["name"] == "tmp"] == [
        {"name": "tmp", "emptyDir": {"medium": "Memory"}}
    ]
    assert after["securityContext"] == before["securityContext"]
    assert pod() == before, "the fields of one run change no other one"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "the key image is missing"),
        ({"image": "i", "namspace": "x"}, 'did you mean "namespace"?'),
        ({"image": "i", "retries": "many"}, "retries: a whole number is expected"),
        ({"image": "i", "retries": True}, "retries: a whole number is expected"),
        ({"image": "i", "grace": "soon"}, "grace: a duration such as 90s is expected"),
        ({"image": "i", "secrets": "one"}, "secrets: a list of names is expected"),
        ({"image": "i", "env": {"A": 1}}, "env: a table of texts is expected"),
        ({"image": "i", "pod": []}, "pod: a table of what JSON has is expected"),
        ({"image": "i", "pod": {"day": date(2026, 1, 2)}}, "pod: a table of what JSON has is expected"),
        ([], "has no keys"),
    ],
)
def test_a_wrong_key_is_named(content: Any, message: str) -> None:
    """With the nearest one, and what is expected."""
    with pytest.raises(UsageError) as error:
        parse_cluster(content)
    assert message in error.value.message


def test_each_key_is_read() -> None:
    """No key is known without a reader."""
    values: dict[str, Any] = {
        "pod": {},
        "secrets": [],
        "env": {},
        **dict.fromkeys(("grace", "node_timeout", "keep", "stagger"), "1m"),
        "retries": 1,
        "user": 2,
    }
    loaded = parse_cluster({name: values.get(name, "text") for name in ClusterConfig._fields})
    assert (loaded.grace, loaded.image) == (60.0, "text")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either --count or --tasks must be given"),
        (("--count", "0"), "from 1 to 10,000 sessions"),
        (("--count", "2", "--base", "absent"), "names no commit"),
    ],
)
def test_a_wrong_run_is_refused(fleet_run: FleetRun, arguments: tuple[str, ...], message: str) -> None:
    """Before anything is pushed."""
    fleet_run.repo.write(".ralph/fleet.yaml", CONFIG)
    refused = fleet(fleet_run, "run", *arguments, "--", "true")
    assert (refused.status, message in refused.stderr) == (2, True), refused.stderr
    assert "refs/ralph/fleet" not in str(fleet_run.refs())


def test_the_configuration_needs_an_approval(fleet_run: FleetRun) -> None:
    """An agent may have written it, and it names the cluster, the image and the secrets."""
    fleet_run.repo.write(".ralph/fleet.yaml", CONFIG)
    refused = fleet(fleet_run, "run", "--count", "1", "--", "true", env={"RALPH_TRUST": ""})
    assert (refused.status, "have not approved .ralph/fleet.yaml" in refused.stderr) == (125, True), (
        refused.stderr
    )
    assert fleet_run.calls() == []


def test_a_password_in_the_address_is_refused(fleet_run: FleetRun) -> None:
    """It would be in the manifest, which everybody in the namespace can read."""
    fleet_run.repo.write(".ralph/fleet.yaml", CONFIG + "remote: https://ada:secret@git.example/p.git\n")
    refused = fleet(fleet_run, "run", "--count", "1", "--", "true")
    assert (refused.status, "git_credential" in refused.stderr) == (2, True), refused.stderr
    assert "secret@" not in refused.stderr


def _variables(job: dict[str, Any]) -> dict[str, str]:
    [container] = job["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}
