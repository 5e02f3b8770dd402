"""How every torture is asked for and answers: its options, the work that several workers share, and the table at the end."""

import argparse
import inspect
import multiprocessing
import multiprocessing.connection
import random
import signal
import sys
import traceback

import stand


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
    """Counts what was right and keeps the wrongs."""

    def __init__(self, title):
        self.title, self.rows, self.wrongs = title, {}, 0

    def add(self, row, right, wrong=""):
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
        return 1 if self.wrongs or not self.rows else 0


def work(title, asked, tasks, torture, **kinds):
    """Does torture(stand, add, chance, task) for each task, in asked.jobs processes, and ends the program with what the table says.
    Tasks have chances of their own, so that neither the number of jobs nor their order changes what is tried. `tasks` may be a
    function of the stand; `kinds` goes to the stand."""
    table = Table(title)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the stand's folder goes then, too
    with stand.Stand(asked.temper, **kinds) as all_of:
        listed = list(tasks(all_of) if inspect.isfunction(tasks) else tasks)
        next_task = multiprocessing.Value("l", 0)
        workers = {}
        for number in range(max(1, min(asked.jobs, len(listed)))):
            heard, said = multiprocessing.Pipe(duplex=False)
            own = all_of.of_worker(number)
            worker = multiprocessing.Process(target=_worker, args=(own, asked.seed, listed, torture, next_task, said), daemon=True)
            worker.start()
            said.close()  # of the worker alone now: its end is heard
            workers[heard] = worker
        interrupted = False
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            _hear(workers, table)
        except KeyboardInterrupt:  # the table says what is known so far
            interrupted = True
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("ended before all was tried", flush=True)
        finally:
            for worker in workers.values():  # none, unless this was interrupted
                worker.terminate()
                worker.join()
    sys.exit(table.end() or int(interrupted))


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
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def add(row, right, wrong=""):
        said.send((row, bool(right), wrong))

    while (number := _taken(next_task)) < len(tasks):
        try:
            torture(own, add, random.Random(f"{seed}/{number}"), tasks[number])
        except Exception:  # a torture that fails itself proves nothing
            add("tasks that failed themselves", False, f"{tasks[number]}: {traceback.format_exc()}")


def _taken(next_task):
    with next_task.get_lock():
        next_task.value += 1
        return next_task.value - 1
