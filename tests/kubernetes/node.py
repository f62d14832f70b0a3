"""A node of a cluster: containerd and kubelet on a machine of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.kubernetes import needs
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kubernetes.machine import Daemon, Machine

SOCKET = "/run/containerd/containerd.sock"
CONTAINERD = f"""
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "ralph-wrap-pause:1"
  netns_mounts_under_state_dir = true
  # Without CAP_SYS_RESOURCE a negative score is refused: "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{needs.CNI}"
    conf_dir = "/run/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""


class Node:
    """A node whose machine has an address already; it is in the cluster when :meth:`start` was called."""

    def __init__(self, machine: Machine, address: str, *, number: int, cgroup: str, kubeconfig: Path) -> None:
        self.name = machine.name
        self.machine = machine
        self._address = address
        self._kubeconfig = kubeconfig
        (machine.directory / "containerd.toml").write_text(CONTAINERD)
        (machine.directory / "network.conflist").write_text(json.dumps(_network(number)))
        (machine.directory / "kubelet.json").write_text(json.dumps(_kubelet(cgroup)))
        machine.call("mkdir", "-p", "/run/cni")
        machine.call("cp", str(machine.directory / "network.conflist"), "/run/cni/")
        self._containerd: Daemon
        self._kubelet: Daemon

    def start(self, images: Sequence[Path] = ()) -> None:
        """Start both daemons, with *images* imported before the first pod comes."""
        self._start_containerd()
        for image in images:
            self.machine.call("ctr", f"--address={SOCKET}", "-n", "k8s.io", "images", "import", str(image))
        self._start_kubelet()
        eventually(self._kubelet_answers, "the kubelet to answer", 120)

    def _start_containerd(self) -> None:
        """Start containerd, and wait until it answers."""
        config = self.machine.directory / "containerd.toml"
        daemon = self._containerd = self.machine.start("containerd", "containerd", f"--config={config}")

        def answers() -> bool:
            daemon.require()
            return self.machine.attempt("ctr", f"--address={SOCKET}", "version").returncode == 0

        eventually(answers, "containerd to answer", 120)

    def _start_kubelet(self) -> None:
        """Start the kubelet."""
        self._kubelet = self.machine.start(
            "kubelet",
            str(needs.directory() / "kubelet"),
            f"--config={self.machine.directory}/kubelet.json",
            f"--kubeconfig={self._kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self._address}",
            "--node-labels=ralph-wrap/test=yes",
        )

    def _kubelet_answers(self) -> bool:
        """Return whether it answers; start it again if it has ended, as systemd does.

        It ends while containerd, which answers already, still reads the pods of before.
        """
        if self._kubelet.has_ended:
            self._start_kubelet()
        probe = "exec 3<>/dev/tcp/127.0.0.1/10248"  # the port of its health
        return self.machine.attempt("bash", "-c", probe).returncode == 0

    def agents(self) -> int:
        """Return how many agents run on the node."""
        return int(self.machine.attempt("pgrep", "--full", "--count", "^/bin/bash .*numbered-lines").stdout)

    def kill(self, *daemons: str) -> None:
        """Send SIGKILL to the daemons ``kubelet`` and ``containerd``."""
        for name in daemons:
            {"kubelet": self._kubelet, "containerd": self._containerd}[name].kill()


def pods_of(number: int) -> str:
    """Return the addresses of the pods of the node with this number."""
    return f"10.50.{number}.0/24"


def _network(number: int) -> dict[str, object]:
    subnet = [[{"subnet": pods_of(number)}]]
    addresses = {"type": "host-local", "ranges": subnet, "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(cgroup: str) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "resolvConf": "/etc/resolv.conf",
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "5s",
        "volumeStatsAggPeriod": "5s",  # after a minute it would see that a pod fills its disk
        "nodeLeaseDurationSeconds": 8,  # renewed each 2 s
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
