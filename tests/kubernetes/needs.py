"""What a cluster needs of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

INSTALL = Path(__file__).with_name("install")
PROGRAMS = (
    "pause",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "kwok",
)
COMMANDS = ("etcd", "containerd", "ctr", "runc", "ip", "iptables", "nsenter", "unshare", "setpriv")
CNI = Path("/usr/lib/cni")


@cache
def directory() -> Path:
    """Return where the programs of Kubernetes are, as the script that builds them says."""
    printed = subprocess.run([INSTALL, "--where"], capture_output=True, text=True, timeout=60, check=True)
    return Path(printed.stdout.strip())


def missing() -> str:
    """Return what is missing for a cluster, or an empty text."""
    if os.getuid() != 0:
        return "only root can make the machines of a cluster"
    absent = [name for name in PROGRAMS if not (directory() / name).exists()]
    absent += [name for name in COMMANDS if shutil.which(name) is None]
    absent += [str(CNI / name) for name in ("bridge", "host-local") if not (CNI / name).exists()]
    if not Path("/sys/fs/cgroup/memory/cgroup.procs").exists():
        return "the nodes of a cluster need control groups of version 1"
    return f"{INSTALL} has not installed {', '.join(absent)}" if absent else ""
