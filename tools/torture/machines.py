"""Machines that a torture makes of this one: each has a network interface, a host name, a boot id, mounts and shared memory of its own.
They share the stand's folder, and a bridge joins them. They last as long as the processes that hold their namespaces."""

import os
import shutil
import signal
import subprocess
import sys
import time

import processes

TOOLS = ("ip", "nsenter", "unshare", "mpirun")
SLOW_WIRE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_wire.py")
AS_ROOT = ("unshare", "--user", "--map-root-user")
HELD = {"net": "--net", "uts": "--uts", "mnt": "--mount", "ipc": "--ipc"}
# The shared folder may lie in /dev/shm, which the others of a machine must not see.
HOLD = """set -e
hostname "$1"; ip link set lo up
if [ -n "$2" ]; then
  exec 9<"$2"
  mount -t tmpfs tmpfs /dev/shm
  mkdir -p "$2"
  mount --no-canonicalize --bind /proc/self/fd/9 "$2"  # else: of the path that hides it
  exec 9<&-
  mount --bind "$3/hosts" /etc/hosts
  cat /proc/sys/kernel/random/uuid > "$3/$1.boot"
  mount --bind "$3/$1.boot" /proc/sys/kernel/random/boot_id
fi
echo held
exec cat"""
AGENT = """#!/bin/sh
# As mpirun calls ssh: the host, and what its shell is to do there. As ssh does, it says when the host is gone.
host=$1
shift
nsenter -t "$(cat {folder}/$host.held)" {options} -- sh -c "$*"
code=$?
[ $code -lt 128 ] && exit $code
echo "Connection to $host closed by remote host." >&2
exit 255
"""


def become_root():
    """Starts this program again as the root of a user namespace, where it is not root and may have one."""
    if os.geteuid() != 0 and shutil.which("unshare") and subprocess.run([*AS_ROOT, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.execvp(AS_ROOT[0], [*AS_ROOT, sys.executable, *sys.argv])


def why_none(folder, slow=()):
    """Why there can be no such machines here; empty where there can. A folder that may be written to."""
    missing = [each for each in TOOLS if not shutil.which(each)]
    if missing:
        return f"{', '.join(missing)} cannot be found"
    try:
        with Machines(folder, slow):
            return ""
    except RuntimeError as error:
        return str(error)


class Machine:
    """One, with the process that holds its namespaces until our end of its pipe is closed."""

    def __init__(self, name, shared="", folder=""):
        self.name = name
        self.holder = subprocess.Popen(["unshare", *HELD.values(), "sh", "-c", HOLD, "sh", name, shared, folder], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.holder.stdout.readline() != "held\n":
            self.holder.stdin.close()
            said = self.holder.stderr.read().strip()
            self.holder.wait()
            raise RuntimeError(f"this machine does not allow namespaces of networks, names and mounts: {said}")

    def inside(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), *HELD.values(), "--", *command]

    def do(self, *command):
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"'{' '.join(command)}' failed in a namespace of this machine: {done.stderr.strip()}")

    def processes(self):
        """All that live in it, but for its holder."""
        own = network_of(self.holder.pid)
        return [each for each in map(processes.Found, filter(str.isdigit, os.listdir("/proc")))
                if each != self.holder.pid and network_of(each) == own and each.lives()]

    def end_all(self):
        """As if the machine died, but for its network."""
        until = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < until:
            for each in left:
                processes.send(each, signal.SIGKILL)

    def end(self):
        self.end_all()
        self.holder.stdin.close()
        self.holder.wait()


class Machines:
    """node1 and node2, at 10.77.0.1 and 10.77.0.2, and `switch`, which holds their bridge; all go with the block. They share `folder`.
    The cables of those in `slow` delay packets by 20 ms, there and back, and lose one of a hundred."""

    def __init__(self, folder, slow=()):
        self.slow = slow
        self.folder = os.path.join(folder, f"machines.{os.getpid()}")
        self.shared = folder
        self.switch, self.nodes = None, []

    def __enter__(self):
        try:
            os.makedirs(self.folder)
            with open(os.path.join(self.folder, "hosts"), "w") as file:
                file.write("127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n")
            self.switch = Machine("switch")
            self.switch.do("ip", "link", "add", "bridge", "type", "bridge")
            self.switch.do("ip", "link", "set", "bridge", "up")
            for number in (1, 2):
                self.join(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self, number):
        node = Machine(f"node{number}", self.shared, self.folder)
        self.nodes.append(node)
        with open(os.path.join(self.folder, f"{node.name}.held"), "w") as file:
            file.write(str(node.holder.pid))
        if node.name in self.slow:
            self.wire(node)
        else:
            self.switch.do("ip", "link", "add", node.name, "type", "veth", "peer", "name", "eth0", "netns", str(node.holder.pid))
        self.switch.do("ip", "link", "set", node.name, "master", "bridge", "up")
        node.do("ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        node.do("ip", "link", "set", "eth0", "up")

    def wire(self, node):
        wire = processes.start(["nsenter", "-t", str(self.switch.holder.pid), "--net", sys.executable, SLOW_WIRE, node.name,
                                str(node.holder.pid), "0.02", "0.01"], stdout=subprocess.PIPE)
        if wire.stdout.readline() != "wired\n":
            raise RuntimeError(f"this machine does not allow tap devices: {wire.communicate()[1].strip()[-300:]}")

    def __exit__(self, *_):
        for each in [*self.nodes, *([self.switch] if self.switch else [])]:
            each.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, node, joined):
        """Whether its cable is plugged in: without it, neither end hears anything of the other one."""
        self.switch.do("ip", "link", "set", node.name, "up" if joined else "down")

    def left_after(self, seconds):
        """Those that still live on the nodes so long after, which are killed then."""
        until = time.monotonic() + seconds
        while (left := [each for node in self.nodes for each in node.processes()]) and time.monotonic() < until:
            time.sleep(0.05)
        for node in self.nodes:
            node.end_all()
        return left

    def mpirun(self, ranks, keep_alive, *command):
        """What starts as many ranks on each node, by an mpirun on node1. It learns within keep_alive[0] + keep_alive[1] * keep_alive[2]
        seconds that the other node is silent."""
        hosts, agent = (os.path.join(self.folder, name) for name in ("hostfile", "agent"))
        with open(hosts, "w") as file:
            file.writelines(f"{node.name} slots={ranks}\n" for node in self.nodes)
        with open(agent, "w") as file:
            file.write(AGENT.format(folder=self.folder, options=" ".join(HELD.values())))
        os.chmod(agent, 0o755)
        names = {"plm_rsh_agent": agent, "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0", "orte_tmpdir_base": "/dev/shm",
                 **{f"oob_tcp_keepalive_{name}": value for name, value in zip(("time", "intvl", "probes"), keep_alive)}}
        return ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                *(f"OMPI_MCA_{name}={value}" for name, value in names.items()),
                *self.nodes[0].inside("mpirun", "--bind-to", "none", "--hostfile", hosts, "-n", str(ranks * len(self.nodes)), *command)]


def network_of(process):
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except OSError:
        return ""
