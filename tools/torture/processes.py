"""How processes of a torture are found, waited for and ended. Numbers are used again by the system: what is not a child of ours is known
by its number and the moment at which it began, and gets a signal only while both fit."""

import os
import signal
import subprocess
import tempfile
import time

ENDLESS = 999  # the exit code of what did not end
_started = []  # whose end was not seen yet


class Found(int):
    """The number of a process that was alive at this moment."""

    def __new__(cls, number):
        self = super().__new__(cls, number)
        self.began = began(number)
        return self

    def lives(self):
        return began(self) == self.began and state_of(self) not in ("", "Z")


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
        return (ENDLESS, *_killed(process))


def start(command, environment=None, **more):
    """A process without input, whose standard error is kept, each byte that is no UTF-8 replaced. end_started() ends it at the latest."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, errors="replace", env={**os.environ, **(environment or {})},
                               **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **more})
    _started[:] = [each for each in _started if each.returncode is None] + [process]
    return process


def end_started():
    """Ends all that start() gave and that still live, with all of theirs."""
    while _started:
        if (process := _started.pop()).poll() is None:
            _killed(process)


def end_of(process, seconds):
    """As run(); what did not end in time is killed, with its descendants."""
    try:
        _, said = process.communicate(timeout=seconds)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return ENDLESS, _killed(process)[0]


def all_ended(process, word, seconds):
    """As end_of(), and who of the run is left so long after, which is killed then."""
    until = time.monotonic() + seconds
    code, said = end_of(process, seconds)
    return code, said, left_after(word, until - time.monotonic())


def _killed(process):
    """Kills it and its descendants; what it said on standard error and on standard output."""
    theirs = descendants_of(process.pid) if process.poll() is None else []
    for each in (process, *theirs):
        send(each, signal.SIGKILL)
    try:
        printed, said = process.communicate(timeout=5)
    except subprocess.TimeoutExpired:  # a process that is no descendant any more holds the pipe
        return "", ""
    return said or "", printed or ""


def measured(command, seconds):
    """As run(), and the most memory that it had, in KiB."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = start(command, stderr=said)
        until = time.monotonic() + seconds
        ended, code, used = 0, 0, None
        while not ended:
            if time.monotonic() > until:
                os.kill(process.pid, signal.SIGKILL)  # process.kill() would poll and reap it
            ended, code, used = os.wait4(process.pid, os.WNOHANG)
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(code) if time.monotonic() < until else ENDLESS
        said.seek(0)
        return process.returncode, said.read(), used.ru_maxrss


def with_word(word):
    """Those whose command line has the word in it."""
    return [each for each in map(Found, filter(str.isdigit, os.listdir("/proc")))
            if word in words_of(each) and each != os.getpid() and each.lives()]


def words_of(process):
    """Its command line; empty where there is none."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def stat_of(process):
    """Its letter, its parent and the moment at which it began in /proc; empty and 0 where there is none."""
    try:
        with open(f"/proc/{process}/stat") as file:
            words = file.read().rsplit(") ", 1)[1].split()  # from the third one on
            return words[0], int(words[1]), int(words[19])
    except (OSError, IndexError):
        return "", 0, 0


def state_of(process):
    return stat_of(process)[0]


def parent_of(process):
    return stat_of(process)[1]


def began(process):
    return stat_of(process)[2]


def descendants_of(process):
    """Its children, theirs, and so on."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(parent_of(name), []).append(Found(name))
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
    """Whether it was alive to get the signal: what start() gave, or what was found."""
    if isinstance(process, subprocess.Popen):
        alive = process.poll() is None
        process.send_signal(number)
        return alive
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return False
    try:
        if alive := process.lives():  # as the handle is of this number, it stays the same process
            signal.pidfd_send_signal(handle, number)
        return alive
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def status_of(process):
    """Of /proc: KiB of VmRSS and VmData, threads, and descriptors."""
    with open(f"/proc/{process}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    numbers = {name: int(lines[name].split()[0]) for name in ("VmRSS", "VmData", "Threads")}
    return {**numbers, "descriptors": len(os.listdir(f"/proc/{process}/fd"))}
