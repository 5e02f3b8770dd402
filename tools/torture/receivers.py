"""A process that answers and takes new weights meanwhile, for as long as a torture needs it, and senders of weights to it."""

import os
import signal
import time

import processes

LONGEST = 5  # seconds that an honest sync may take


class Receiver:
    """Answers one prompt again and again; ends with the block that it is made for."""

    def __init__(self, stand, name="receiver"):
        self.stand, self.name = stand, name
        os.makedirs(stand.runs, exist_ok=True)
        self.socket = os.path.join(stand.runs, f"{name}.sock")
        self.answers = os.path.join(stand.runs, f"{name}.jsonl")
        self.version = 0
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()

    def start(self):
        rows = os.path.join(self.stand.runs, f"{self.name}_rows.jsonl")
        with open(os.path.join(self.stand.rows, "prompts.jsonl")) as all_rows, open(rows, "w") as one:
            one.write(all_rows.readline())
        if os.path.exists(self.answers):
            os.remove(self.answers)
        with open(f"{self.answers}.log", "w") as log:
            self.process = processes.start(
                [self.stand.temper, "batch", self.stand.model, rows, "--out", self.answers, "--samples", "100000", "-n", "64",
                 "--batch", "2", "--threads", "1", "--weights-from", self.socket], stderr=log)
        try:
            self.wait()
        except BaseException:  # an interruption, too
            self.end(signal.SIGKILL)
            raise

    def wait(self):
        """Until it takes weights."""
        until = time.monotonic() + 30
        while not self.said().startswith("takes new weights"):
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError(f"a receiver did not begin:\n{self.said()}")
            time.sleep(0.02)

    def said(self):
        with open(f"{self.answers}.log") as log:
            return log.read()

    def end(self, number=signal.SIGTERM):
        """The exit code."""
        processes.send(self.process, number)
        return processes.end_of(self.process, 20)[0]

    def command(self, *more):
        """Of a sender, whose weights are newer than all before."""
        self.version += 1
        return [self.stand.temper, "weights", "send", self.stand.model, "--to", self.socket, "--as-version", str(self.version),
                "--check-sync", *more]

    def wrong_of_sync(self):
        """Of an honest one; empty where it is done in time."""
        begin = time.monotonic()
        code, said = processes.run(self.command(), seconds=LONGEST + 30)
        took = time.monotonic() - begin
        if code == 0 and took <= LONGEST and self.process.poll() is None:
            return ""
        return f"the next sync ended with {code} after {took:.1f} s: {said[-300:]!r}; the receiver said {self.said()[-400:]!r}"
