"""The git server of docs/fleet.md on the cluster: a Deployment with a volume on a node, and a Service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.documents import blocks
from tests.kubernetes.images import FLEET
from tests.kubernetes.remote import Remote
from tests.kubernetes.run import LIMIT
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import GitServer

DOCUMENT = Path(__file__).parents[2] / "docs/fleet.md"
IMAGE = "registry.example/agents:1"
_NAME = "git"
_PORT = "9418"
_SELECTOR = f"--selector=app.kubernetes.io/name={_NAME}"
_DIRECTORY = "/var/lib/git-volume"


def manifest() -> str:
    """Return what the document says, with the image of the tests."""
    [found] = [block.text for block in blocks(DOCUMENT) if "kind: Deployment" in block.text]
    assert IMAGE in found
    return found.replace(IMAGE, FLEET)


class ClusterGit(Remote):
    """The repository of the server: its volume is a directory of this machine, so a test reads it there.

    The cluster has no kube-proxy. So :meth:`route` plays it for the one Service.

    Arguments:
        journal: the git server that has the journal of the agents.

    """

    def __init__(self, cluster: Cluster, journal: GitServer) -> None:
        self._cluster = cluster
        self._control = cluster.control
        self._node = cluster.nodes["node1"].machine
        self._rules: list[list[str]] = []
        volume = self._node.directory / "lib" / Path(_DIRECTORY).name
        self._node.call("install", "-d", "-o", "1000", "-g", "1000", _DIRECTORY)
        self._control.kubectl("apply", "-f", "-", text=json.dumps(_volume(self._node.name)))
        self._control.kubectl("apply", "-f", "-", text=manifest())
        self.service = str(self._control.get("service", _NAME)["spec"]["clusterIP"])
        self.path = volume / "project.git"
        self.address = self.route()
        (volume / "journal").symlink_to(journal.root / "journal")
        self._note_updates()

    def give_to_the_server(self) -> None:
        """Let the server write what a test has written."""
        self._node.call("chown", "-R", "1000:1000", _DIRECTORY)

    def route(self) -> str:
        """Lead each node's connections to the Service to the pod, once it is ready; return its address."""
        self._unroute()
        ready = ("wait", "--for=condition=Ready", "pod", _SELECTOR, "--timeout=60s")
        eventually(lambda: self._control.attempt(*ready), "the git server to be ready", LIMIT)
        [found] = self._control.get("pods", _SELECTOR)["items"]
        pod = str(found["status"]["podIP"])
        tcp = ["--protocol", "tcp", "--dport", _PORT]
        self._rules = [
            ["PREROUTING", "-d", self.service, *tcp, "-j", "DNAT", "--to-destination", f"{pod}:{_PORT}"],
            ["POSTROUTING", "-d", pod, *tcp, "-j", "MASQUERADE"],
        ]
        self._change_rules("--append")
        return f"git://{pod}/project.git"

    def _unroute(self) -> None:
        self._change_rules("--delete")
        self._rules = []

    def _change_rules(self, action: str) -> None:
        for node in self._cluster.nodes.values():
            for rule in self._rules:
                node.machine.call("iptables", "--wait", "--table", "nat", action, *rule)

    def delete_pod(self) -> None:
        """Delete the pod; the Deployment makes another one with the same volume."""
        self._control.kubectl("delete", "pod", _SELECTOR)

    def end(self) -> None:
        """Delete everything."""
        self._unroute()
        self._control.kubectl("delete", "-f", "-", text=manifest())
        self._control.kubectl("delete", "pv", _NAME)
        self._node.call("rm", "-rf", _DIRECTORY)


def _volume(node: str) -> dict[str, Any]:
    """Return a volume on a node, for the one claim of the Deployment."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": _DIRECTORY},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": _NAME}, "spec": spec}
