"""A real Kubernetes of two nodes, on a network that no other machine can reach."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from tests.kubernetes.control_plane import ADDRESS, READY, ControlPlane
from tests.kubernetes.failure_output import PodLogs
from tests.kubernetes.leftovers import Place
from tests.kubernetes.machine import Machine, connect
from tests.kubernetes.node import Node, pods_of
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType


class Cluster:
    """A control plane and two nodes, which end with the ``with`` block or with the process.

    Attributes:
        hub: the machine of the control plane, and of what the tests run beside it
        control: the control plane
        nodes: the two nodes, by name
        pod_logs: what all pods have printed

    """

    def __init__(self, images: Sequence[Path] = ()) -> None:
        self._images = images
        self._stack = ExitStack()
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Self:
        with self._stack:
            place = Place()
            self._stack.callback(place.remove)
            self.directory = place.directory
            self.hub = self._machine("hub")
            self.hub.call("ip", "link", "add", "br0", "type", "bridge")
            self.hub.call("ip", "addr", "add", f"{ADDRESS}/24", "dev", "br0")
            self.hub.call("ip", "link", "set", "br0", "up")
            self.control = ControlPlane(self.hub)
            for number in (1, 2):
                self._add_node(number, place.make_cgroup(f"node{number}"))
            sources = [node.machine.directory / "log" / "pods" for node in self.nodes.values()]
            self.pod_logs = PodLogs(self.directory / "pod-logs", sources)
            self._stack.callback(self.pod_logs.end)
            eventually(self.ready, "the nodes to be ready", READY)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _machine(self, name: str) -> Machine:
        machine = Machine(name, self.directory / name)
        self._stack.callback(machine.end)
        return machine

    def _add_node(self, number: int, cgroup: str) -> None:
        machine = self._machine(f"node{number}")
        connect(machine, address_of(number), self.hub)
        machine.call("ip", "route", "add", "default", "via", ADDRESS)
        address = address_of(number)
        self.hub.call("ip", "route", "add", pods_of(number), "via", address)
        node = Node(machine, address, number=number, cgroup=cgroup, kubeconfig=self.control.kubeconfig)
        node.start(self._images)
        self.nodes[node.name] = node

    def ready(self) -> bool:
        """Return whether both nodes are ready and take pods."""
        nodes = self.control.get("nodes")["items"]
        return sum(_ready(node) for node in nodes) == 2

    @contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Let new pods come to this node alone, within the block."""
        others = [other for other in self.nodes if other != name]
        self.control.kubectl("cordon", *others)
        try:
            yield
        finally:
            self.control.kubectl("uncordon", *others)

    def cut(self, name: str) -> None:
        """Pull the network cable of a node."""
        self.hub.call("ip", "link", "set", name, "down")

    def mend(self, name: str) -> None:
        """Put the network cable of a node in again."""
        self.hub.call("ip", "link", "set", name, "up")


def address_of(number: int) -> str:
    """Return the address of the node with this number."""
    return f"10.99.0.{10 + number}"


def _ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
