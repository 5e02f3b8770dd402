"""How every torture is asked for and answers: its options, the work that several workers share, and the table at the end."""

import argparse
import inspect
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import sys
import traceback

import processes
import stand

NOT_TRIED = "not tried"  # neither right nor wrong: what was to be tried did not come about


def arguments(description, *options):
    """Each option: its name, its default, whose type it has, and what it says of itself. All have temper, --seed and --jobs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper")
    every = [*options, ("--seed", 1, "chooses the places"), ("--jobs", 1, "works at the same time")]
    for name, default, text in every:
        parser.add_argument(name, type=type(default), default=default, help=f"{text} ({default})")
    return parser.parse_args()


def words(text):
    """Of an option with commas."""
    return [each for each in text.split(",") if each]


class Table:
    """Counts what was right, and what was not tried, and keeps the wrongs."""

    def __init__(self, title):
        self.title, self.rows, self.not_tried, self.wrongs = title, {}, {}, 0

    def add(self, row, right, wrong=""):
        if right == NOT_TRIED:
            self.not_tried[row] = self.not_tried.get(row, 0) + 1
            return
        good, all_ = self.rows.get(row, (0, 0))
        self.rows[row] = (good + (1 if right else 0), all_ + 1)
        if not right:
            self.wrongs += 1
            print(f"WRONG {row}: {wrong}", flush=True)

    def end(self):
        """Prints it; the exit code."""
        print(f"\n{self.title}")
        for row, (good, all_) in sorted(self.rows.items()):
            print(f"  {row:<48} {good:>6} of {all_}")
        for row, count in sorted(self.not_tried.items()):
            print(f"  {row:<48} {count:>6} do not count")
        return 1 if self.wrongs or not self.rows else 0


def work(title, asked, tasks, torture, **kinds):
    """Does torture(stand, add, chance, task) for each task, in asked.jobs processes, and ends the program with what the table says, with 1
    where it is interrupted. Tasks have chances of their own, so that neither the number of jobs nor their order changes what is tried.
    `tasks` may be a function of the stand; `kinds` goes to the stand. Nothing that was started outlives it."""
    table, interrupted = Table(title), False
    on_interruption(lambda *_: sys.exit(1))  # the stand's folder goes then, too
    with stand.Stand(asked.temper, **kinds) as all_of:
        workers = {}
        try:
            on_interruption(signal.default_int_handler)
            listed = list(tasks(all_of) if inspect.isfunction(tasks) else tasks)
            next_task = multiprocessing.Value("l", 0)
            for number in range(max(1, min(asked.jobs, len(listed)))):
                heard, said = multiprocessing.Pipe(duplex=False)
                own = all_of.of_worker(number)
                worker = multiprocessing.Process(target=_worker, args=(own, asked.seed, listed, torture, next_task, said), daemon=True)
                worker.start()
                said.close()  # of the worker alone now: its end is heard
                workers[heard] = worker
            _hear(workers, table)
        except KeyboardInterrupt:  # the table says what is known so far
            interrupted = True
            print("ended before all was tried", flush=True)
        finally:
            on_interruption(_nothing)
            _end(workers.values(), all_of)
    on_interruption(signal.SIG_IGN)  # Python gives handlers up before it ends
    sys.exit(table.end() or int(interrupted))


def on_interruption(handler):
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handler)


def _nothing(*_):
    """A handler. What is ignored instead is ignored by all that is started, too."""


def _end(workers, all_of):
    """There are no workers, unless this was interrupted."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(60)
        worker.kill()
    processes.end_started()
    processes.left_after(all_of.folder, 0)


def _hear(workers, table):
    while workers:
        for heard in multiprocessing.connection.wait(list(workers)):
            try:
                table.add(*heard.recv())
            except EOFError:
                worker = workers.pop(heard)
                worker.join()
                if worker.exitcode != 0:
                    table.add("workers", False, f"one ended with {worker.exitcode}")


def _worker(own, seed, tasks, torture, next_task, said):
    signal.signal(signal.SIGINT, _nothing)  # a terminal sends it to all; who waits for us sends the other one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def add(row, right, wrong=""):
        said.send((row, right if right == NOT_TRIED else bool(right), wrong))

    try:
        while (number := _taken(next_task)) < len(tasks):
            try:
                torture(own, add, random.Random(f"{seed}/{number}"), tasks[number])
            except Exception:  # a torture that fails itself proves nothing
                add("tasks that failed themselves", False, f"{tasks[number]}: {traceback.format_exc()}")
            _end_all_of(own)
    finally:
        signal.signal(signal.SIGTERM, _nothing)
        _end_all_of(own)


def _end_all_of(own):
    processes.end_started()
    processes.left_after(own.runs + os.sep, 0)


def _taken(next_task):
    with next_task.get_lock():
        next_task.value += 1
        return next_task.value - 1
