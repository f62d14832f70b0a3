"""The control plane of a cluster: etcd, API server, controller manager and scheduler on one machine."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.kubernetes import needs
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.machine import Daemon, Machine

ADDRESS = "10.99.0.1"
TOKEN = "administrator"  # noqa: S105 - of a cluster that only the tests reach
NODE_GRACE = 20
"""Seconds after which the controller manager takes a silent node for dead: ten beats of its lease."""
READY = 180.0
"""Seconds in which a control plane is ready on the busiest machine."""
COMPILED = ("--profiling=false",)


class ControlPlane:
    """The control plane on *machine*, which has the address already.

    Attributes:
        machine: where it runs
        kubeconfig: what an administrator gives to kubectl

    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kubeconfig = machine.directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(_kubeconfig()))
        self._daemons: dict[str, Daemon] = {}
        self._write_keys()
        machine.call("sh", "-c", "mkdir -p /var/lib/etcd && mount -t tmpfs tmpfs /var/lib/etcd")
        self._start("etcd", "etcd", *_ETCD)
        self.start_api()
        self._start(
            "controller-manager", str(needs.directory() / "kube-controller-manager"), *self._manager()
        )
        self._start("scheduler", str(needs.directory() / "kube-scheduler"), *self._client(), *COMPILED)
        eventually(lambda: self.attempt("get", "serviceaccount", "default"), "a service account", READY)

    def start_api(self) -> None:
        """Start the API server, and wait until it answers."""
        daemon = self._start("api", str(needs.directory() / "kube-apiserver"), *self._api())

        def ready() -> bool:
            daemon.require()
            return self.attempt("get", "--raw", "/readyz")

        eventually(ready, "the API server to answer", READY)

    def stop_api(self) -> None:
        """Kill the API server."""
        self._daemons["api"].kill()

    def _start(self, name: str, *command: str) -> Daemon:
        self._daemons[name] = self.machine.start(name, *command)
        return self._daemons[name]

    def _write_keys(self) -> None:
        directory = self.machine.directory
        private, public = directory / "accounts.key", directory / "accounts.pub"
        subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
        subprocess.run(
            ["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True
        )
        (directory / "tokens.csv").write_text(f"{TOKEN},administrator,1,system:masters\n")

    def _api(self) -> list[str]:
        directory = self.machine.directory
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}",
            "--secure-port=6443",
            f"--cert-dir={directory}/certificates",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={directory}/accounts.pub",
            f"--service-account-signing-key-file={directory}/accounts.key",
            f"--token-auth-file={directory}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--anonymous-auth=false",
            "--kubelet-preferred-address-types=InternalIP",
            *COMPILED,
        ]

    def _manager(self) -> list[str]:
        return [
            *self._client(),
            f"--service-account-private-key-file={self.machine.directory}/accounts.key",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--node-monitor-period=2s",
            f"--node-monitor-grace-period={NODE_GRACE}s",
            *COMPILED,
        ]

    def _client(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"]

    def attempt(self, *arguments: str) -> bool:
        """Run kubectl, and return whether it succeeded."""
        return self.call(*arguments).returncode == 0

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run kubectl, and return how that went."""
        return self.machine.attempt(*self._kubectl(), *arguments)

    def kubectl(self, *arguments: str, text: str | None = None, limit: float = 180) -> str:
        """Run kubectl as the administrator, and return what it printed."""
        return self.machine.call(*self._kubectl(), *arguments, text=text, limit=limit)

    def get(self, *arguments: str) -> Any:
        """Return objects of the API as kubectl prints them in JSON."""
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def _kubectl(self) -> list[str]:
        return [str(needs.directory() / "kubectl"), f"--kubeconfig={self.kubeconfig}"]


_ETCD = (
    "--data-dir=/var/lib/etcd/data",
    "--listen-client-urls=http://127.0.0.1:2379",
    "--advertise-client-urls=http://127.0.0.1:2379",
    "--listen-peer-urls=http://127.0.0.1:2380",
    "--quota-backend-bytes=4294967296",
)


def _kubeconfig() -> dict[str, Any]:
    cluster = {"server": f"https://{ADDRESS}:6443", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
