"""Calls of programs that fail, or that a signal comes before, which fail_at.c counts and strikes."""

import os

import processes


def environment_of(stand, kind, **more):
    """Preloads it for calls of that kind; what is more are its variables without their FAIL_."""
    given = {f"FAIL_{name.upper()}": str(int(value) if isinstance(value, int) else value) for name, value in more.items()}
    return {"LD_PRELOAD": stand.library("fail_at.c"), "FAIL_KIND": kind, **given}


def counted(stand, name, command, environment):
    """How many calls such a command makes, of the process that makes the most."""
    return _lines_of(stand, name, command, environment)[0]


def first_from_each_stack(stand, name, command, environment, callers):
    """The numbers of the calls that are the first from so many innermost callers."""
    return _lines_of(stand, f"{name}.stacks.{callers}", command, {**environment, "COUNT_STACKS": str(callers)})[1:]


def _lines_of(stand, name, command, environment):
    def compute():
        path = os.path.join(stand.folder, f"count.{name}")
        code, said = processes.run(command, {**environment, "COUNT_FILE": path})
        if code != 0:
            raise RuntimeError(f"{command}, whose calls are counted, ended with {code}:\n{said}")
        with open(path) as file:
            return max(list(map(int, line.split())) for line in file)

    return stand.once(f"calls.{name}", compute)


class Mark:
    """A file that is there once something has been struck, or a clock shifted."""

    def __init__(self, stand):
        os.makedirs(stand.runs, exist_ok=True)
        self.path = os.path.join(stand.runs, "struck")
        if os.path.exists(self.path):
            os.remove(self.path)

    def is_there(self):
        return os.path.exists(self.path)
