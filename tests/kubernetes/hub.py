"""A hub on the cluster, from its chart: a StatefulSet with a volume on a node, and a Service."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tests.kubernetes.charts import render_chart
from tests.kubernetes.images import FLEET
from tests.kubernetes.run import LIMIT
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote

NAME = "ralph-wrap-hub"
POD = f"{NAME}-0"
CLIENT = "hub-client"
_PASSWORD = "agent:of-the-hub"  # noqa: S105 - of a hub that only the cluster reaches
_DIRECTORY = "/var/lib/hub-volume"
_KINDS = "statefulset,service,networkpolicy"


class ClusterHub:
    """A hub whose origin is the remote of a test.

    The cluster has no kube-proxy. So :meth:`route` plays it for the one Service.

    Attributes:
        address: of the project at the Service, as the pods of sessions have it

    """

    def __init__(self, cluster: Cluster, remote: Remote) -> None:
        self._cluster = cluster
        self._control = cluster.control
        self._rules: list[list[str]] = []
        node = cluster.nodes["node1"]
        node.machine.call("install", "-d", "-o", "1000", "-g", "1000", _DIRECTORY)
        values = {"origin": remote.address, "image": FLEET, "interval": "2s"}
        self._apply(_volume(node.name))
        self._apply(_secret(NAME, "credential", f"{_PASSWORD}\n"))
        self._apply(_secret("ralph-wrap-origin", "credentials", f"{remote.address}\n"))
        self._control.kubectl("apply", "-f", "-", text=render_chart(NAME, values, "hub-chart"))
        host = str(self._control.get("service", NAME)["spec"]["clusterIP"])
        self._service = host
        self.address = f"http://{host}/project.git"
        self._apply(_secret(CLIENT, "credentials", f"http://{_PASSWORD}@{host}\n"))
        self.route()

    def _apply(self, document: dict[str, Any]) -> None:
        self._control.kubectl("apply", "-f", "-", text=json.dumps(document))

    def route(self) -> None:
        """Wait until the hub is ready, and lead each node's connections to the Service to its pod."""
        self._unroute()
        ready = ("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=60s")
        eventually(lambda: self._control.attempt(*ready), "the hub to be ready", LIMIT)
        pod = str(self._control.get("pod", POD)["status"]["podIP"])
        tcp = ["--protocol", "tcp", "--dport"]
        self._rules = [
            ["PREROUTING", "-d", self._service, *tcp, "80", "-j", "DNAT", "--to-destination", f"{pod}:8080"],
            ["POSTROUTING", "-d", pod, *tcp, "8080", "-j", "MASQUERADE"],
        ]
        self._change_rules("--append")

    def _unroute(self) -> None:
        self._change_rules("--delete")
        self._rules = []

    def _change_rules(self, action: str) -> None:
        for node in self._cluster.nodes.values():
            for rule in self._rules:
                node.machine.call("iptables", "--wait", "--table", "nat", action, *rule)

    def delete_pod(self) -> None:
        """Delete the pod of the hub; the StatefulSet makes another one with the same volume."""
        self._control.kubectl("delete", "pod", POD)

    def end(self) -> None:
        """Delete everything."""
        self._unroute()
        self._control.kubectl("delete", _KINDS, NAME)
        self._control.kubectl("delete", "pvc", f"volume-{POD}")
        self._control.kubectl("delete", "pv", NAME)
        self._control.kubectl("delete", "secret", NAME, "ralph-wrap-origin", CLIENT)
        self._cluster.nodes["node1"].machine.call("rm", "-rf", _DIRECTORY)


def _secret(name: str, file: str, content: str) -> dict[str, Any]:
    data = {file: base64.b64encode(content.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def _volume(node: str) -> dict[str, Any]:
    """Return a volume on a node, for the one claim of the StatefulSet."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": _DIRECTORY},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": NAME}, "spec": spec}
