"""How processes of a torture are found, waited for and ended, each by its own number."""

import os
import signal
import subprocess
import tempfile
import time

ENDLESS = 999  # the exit code of what did not end


def run(command, environment=None, seconds=120):
    """The exit code (below 0: the signal that ended it; ENDLESS: it did not end) and what it said on standard error."""
    process = start(command, environment)
    return end_of(process, seconds)


def spoken(command, seconds=120):
    """The exit code, and what is said on standard error and on standard output."""
    process = start(command, stdout=subprocess.PIPE)
    try:
        printed, said = process.communicate(timeout=seconds)
        return process.returncode, said, printed
    except subprocess.TimeoutExpired:
        process.kill()
        printed, said = process.communicate()
        return ENDLESS, said, printed


def start(command, environment=None, **more):
    """A process without input, whose standard error is kept, each byte that is no UTF-8 replaced."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **more},
                            text=True, errors="replace", env={**os.environ, **(environment or {})})


def end_of(process, seconds):
    """As run(); what did not end in time is killed."""
    try:
        _, said = process.communicate(timeout=seconds)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        _, said = process.communicate(timeout=5)
    except subprocess.TimeoutExpired:  # a child of it holds the pipe
        said = ""
    return ENDLESS, said


def measured(command, seconds):
    """As run(), and the most memory that it had, in KiB."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = start(command, stderr=said)
        until = time.monotonic() + seconds
        ended, code, used = 0, 0, None
        while not ended:
            if time.monotonic() > until:
                send(process.pid, signal.SIGKILL)  # process.kill() would wait for it
            ended, code, used = os.wait4(process.pid, os.WNOHANG)
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(code) if time.monotonic() < until else ENDLESS
        said.seek(0)
        return process.returncode, said.read(), used.ru_maxrss


def with_word(word):
    """Those whose command line has the word in it."""
    return [each for each in map(int, filter(str.isdigit, os.listdir("/proc")))
            if word in words_of(each) and each != os.getpid() and state_of(each) not in ("", "Z")]


def words_of(process):
    """Its command line; empty where there is none."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def stat_of(process):
    """Its letter and its parent in /proc; empty and 0 where there is none."""
    try:
        with open(f"/proc/{process}/stat") as file:
            state, parent = file.read().rsplit(") ", 1)[1].split()[:2]
            return state, int(parent)
    except (OSError, IndexError):
        return "", 0


def state_of(process):
    return stat_of(process)[0]


def parent_of(process):
    return stat_of(process)[1]


def descendants_of(process):
    """Its children, theirs, and so on."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(parent_of(int(name)), []).append(int(name))
    found, to_see = [], [process]
    while to_see:
        inner = children.get(to_see.pop(), [])
        found += inner
        to_see += inner
    return sorted(found)


def rank_of(process):
    """The rank that Open MPI has given it; none of launchers and of processes that are gone."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    found = [each for each in variables if each.startswith(b"OMPI_COMM_WORLD_RANK=")]
    return int(found[0].split(b"=")[1]) if found else None


def left_after(word, seconds=10):
    """Those that still live so long after, which are killed then."""
    until = time.monotonic() + seconds
    while (left := with_word(word)) and time.monotonic() < until:
        time.sleep(0.05)
    for each in left:
        send(each, signal.SIGKILL)
    return left


def send(process, number):
    """Whether it was there to get the signal."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def status_of(process):
    """Of /proc: KiB of VmRSS and VmData, threads, and descriptors."""
    with open(f"/proc/{process}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    numbers = {name: int(lines[name].split()[0]) for name in ("VmRSS", "VmData", "Threads")}
    return {**numbers, "descriptors": len(os.listdir(f"/proc/{process}/fd"))}
