"""Control groups that limit memory, of version 1 or 2, where this process may make some."""

import os
import signal
import time

import processes

ROOTS = {"memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
         "": ("/sys/fs/cgroup", "memory.max", "memory.swap.max", "memory.events")}


class Group:
    """One below the group of this process, or below the nearest one above that passes the limit on; it goes with the block."""

    def __init__(self, folder, names):
        self.folder = folder
        self.limit, self.swap, self.events = (os.path.join(folder, name) for name in names)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        until = time.monotonic() + 10
        while os.path.isdir(self.folder) and time.monotonic() < until:
            for each in map(processes.Found, read(os.path.join(self.folder, "cgroup.procs")).split()):
                processes.send(each, signal.SIGKILL)
            try:
                os.rmdir(self.folder)
            except OSError:  # those that are killed are members until they are gone
                time.sleep(0.02)

    def set(self, size):
        write(self.limit, size)
        if os.path.exists(self.swap):
            write(self.swap, size if self.limit.endswith("in_bytes") else 0)

    def inside(self, command):
        return ["bash", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(self.folder, "cgroup.procs"), *command]

    def killed(self):
        """How many processes the system has killed for want of memory."""
        lines = dict(line.split() for line in read(self.events).splitlines())
        return int(lines.get("oom_kill", 0))


def new_group(name):
    """None where no group can be made."""
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in {"memory", ""} & set(controllers.split(",")):
            root, *names = ROOTS[controller]
            while path:
                folder = os.path.join(root, path.lstrip("/"), name)
                if made(folder, names[0]):
                    return Group(folder, names)
                path = os.path.dirname(path) if path != "/" else ""
    return None


def made(folder, limit):
    try:
        os.mkdir(folder)
    except OSError:
        return False
    if os.access(os.path.join(folder, limit), os.W_OK):
        return True
    os.rmdir(folder)
    return False


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))
