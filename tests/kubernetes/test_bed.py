"""The cluster itself: real pods, a remote that they reach, and a host that keeps nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.kubernetes import images
from tests.kubernetes.leftovers import CGROUPS, PREFIX, Place
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote

KILLED = """
import sys, time
from tests.kubernetes.leftovers import Place
from tests.kubernetes.machine import Machine
place = Place()
place.make_cgroup("node1")
machine = Machine("hub", place.directory / "hub")
daemon = machine.start("sleeper", "sleep", "1000")
print(place.directory, machine.pid, flush=True)
time.sleep(1000)
"""
SETTINGS = [
    Path("/proc/sys") / name for name in ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
]


def _job(name: str, script: str) -> dict[str, Any]:
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    container = {
        "name": "shell",
        "image": images.FLEET,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"test": name}}}],
        "containers": [container],
    }
    template = {"metadata": {"labels": {"test": name}}, "spec": pod}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_pods_on_two_nodes_push_to_the_remote(cluster: Cluster, remote: Remote) -> None:
    """An indexed Job has a pod on each node, and each of them pushes; the hook lists both pushes."""
    script = f"""
        cd "$(mktemp -d)" && git init -q . && git config user.email p@invalid && git config user.name P &&
        git commit -q --allow-empty -m "$JOB_COMPLETION_INDEX" &&
        git push -q {remote.address} HEAD:refs/heads/index-$JOB_COMPLETION_INDEX
    """
    cluster.control.kubectl("apply", "-f", "-", text=json.dumps(_job("pushes", script)))
    cluster.control.kubectl("wait", "--for=condition=complete", "job/pushes", "--timeout=120s")
    pods = cluster.control.get("pods", "--selector=test=pushes")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node1", "node2"}
    assert sorted(remote.refs()) == ["refs/heads/index-0", "refs/heads/index-1"]
    assert {update.ref for update in remote.updates()} >= {"refs/heads/index-0", "refs/heads/index-1"}
    cluster.control.kubectl("delete", "job", "pushes")


def test_the_host_keeps_its_settings_links_and_mounts(cluster: Cluster) -> None:
    """While a cluster runs, kernel settings are those of the machine of the tests, not those of a kubelet."""
    node = cluster.nodes["node1"].machine
    wanted = [node.call("cat", str(path)).strip() for path in SETTINGS]
    assert wanted == ["1", "10", "1"]  # the kubelet's
    assert [path.read_text().strip() for path in SETTINGS] != wanted
    assert not {"br0", "node1", "node2"} & {path.name for path in Path("/sys/class/net").iterdir()}
    assert PREFIX not in Path("/proc/self/mounts").read_text()


def test_a_killed_run_leaves_no_process_and_the_next_removes_its_files() -> None:
    """SIGKILL of a test run ends its machines; the next run removes the directory and the control groups."""
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        directory, pid = run.stdout.readline().split()
        first = psutil.Process(int(pid))
        family = [first, *first.children(recursive=True)]
        os.kill(run.pid, signal.SIGKILL)
    eventually(lambda: not any(process.is_running() for process in family), "the machine to end")
    assert Path(directory).exists()
    place = Place()
    try:
        assert not Path(directory).exists()
        assert not list(CGROUPS.glob(f"*/{Path(directory).name}"))
        assert place.directory.exists()
    finally:
        place.remove()
