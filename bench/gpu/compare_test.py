#!/usr/bin/env python3
"""What compare.py makes of programs that agree, differ, fail or take too long; no GPU takes part."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

import compare  # next to this file

PEER = {"tokens_per_second": 1000, "memory_gib": 40.0, "first_step_seconds": 100.0, "losses": [12.0, 11.9],
        "grad_norms": [2.0, 1.5]}
TEMPER = {**PEER, "tokens_per_second": 1500, "memory_gib": 20.0, "first_step_seconds": 2.0, "tflops": 500.0,
          "of_peak": 0.7}


class Compare(unittest.TestCase):
    def table(self, peer, temper, *arguments):
        """Rows and exit code of a comparison whose programs answer `peer` and `temper`: JSON, or a Failure."""
        self.commands = []

        def answer(command, timeout):
            command = list(map(str, command))
            self.commands.append(command)
            if "make_model.py" in command[1]:
                folder = pathlib.Path(command[3])
                folder.mkdir(parents=True)
                (folder / "tokens.int32").write_bytes(b"")
                raise compare.Failure("prints nothing")
            found = peer if "transformers_train.py" in command[1] else temper
            if isinstance(found, compare.Failure):
                raise found
            return found

        real, compare.run = compare.run, answer
        try:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = compare.main(["--cases", *arguments])
        finally:
            compare.run = real
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in out.getvalue().splitlines()[2:]], code

    def test_programs_that_agree(self):
        rows, code = self.table(PEER, TEMPER, "qwen3-0.6b")
        self.assertEqual(code, 0)
        self.assertEqual(rows, [["qwen3-0.6b", "each its default", "4", "1,000", "40.0", "100.0", "1,500", "500",
                                 "70 %", "20.0", "2.0", "1.50x", "0.50x", "0e+00", "0e+00"]])
        self.assertEqual(len(compare.HEAD), len(rows[0]))

    def test_losses_that_differ_are_loud(self):
        rows, code = self.table(PEER, {**TEMPER, "losses": [12.0, 12.0]}, "qwen3-0.6b", "qwen3-8b")
        self.assertEqual(code, 1)
        self.assertEqual([row[-2] for row in rows], ["**8e-03: more than 5e-04**"] * 2)
        for wrong in ([12.0], [12.0, float("nan")], []):
            self.assertEqual(self.table(PEER, {**TEMPER, "losses": wrong}, "qwen3-0.6b")[1], 1)
        self.assertEqual(self.table(PEER, {**TEMPER, "grad_norms": [2.2, 1.5]}, "qwen3-0.6b")[1], 1)

    def test_later_steps_may_differ_more(self):
        ours = [12.0] * compare.FIRST_STEPS
        self.assertAlmostEqual(compare.apart([*ours, 12.012], [*ours, 12.0], 4), 1e-3 / 4)
        self.assertEqual(compare.apart([*ours, float("nan")], [*ours, 12.0], 4), float("inf"))
        self.assertAlmostEqual(compare.apart([12.012, *ours], [12.0, *ours], 4), 1e-3)

    def test_a_peer_that_fails_leaves_a_row(self):
        rows, code = self.table(compare.Failure("out of memory"), TEMPER, "qwen3-8b", "qwen3-8b-lora-bfloat16")
        self.assertEqual(code, 0)
        self.assertEqual([row[3] for row in rows], ["out of memory"] * 2)
        self.assertEqual([row[6] for row in rows], ["1,500"] * 2)
        rows, code = self.table(PEER, compare.Failure("exit code 1"), "qwen3-8b")
        self.assertEqual((rows[0][6], code), ("exit code 1", 1))

    def test_both_adapters_and_like_for_like(self):
        names = ["qwen3-8b-lora-float32", "qwen3-8b-lora-bfloat16", "qwen3-8b-full", "qwen3-8b", "qwen3-8b-none"]
        rows, _ = self.table(PEER, TEMPER, *names)
        self.assertEqual([row[1] for row in rows],
                         ["PEFT's default", "bfloat16 adapter: the fair one", "full checkpointing in both",
                          "each its default", "no checkpointing in both"])
        peers = [c for c in self.commands if "transformers_train.py" in c[1]]
        self.assertEqual([c[c.index("--adapter-dtype") + 1] for c in peers if "--adapter-dtype" in c],
                         ["float32", "bfloat16"])
        self.assertEqual([c[c.index("--checkpointing") + 1] for c in peers], ["none", "none", "full", "none"])
        tempers = [c for c in self.commands if "temper_bench_train" in c[0]]
        self.assertEqual(len(tempers), 4)  # both adapters are compared with one run
        self.assertEqual([c[c.index("--checkpointing") + 1] for c in tempers], ["none", "full", "selective", "none"])

    def test_mixtures_run_once_more_with_balanced_loads(self):
        rows, code = self.table(PEER, TEMPER, "small-mixture", "qwen3-0.6b", "--balanced")
        self.assertEqual([row[0] for row in rows], ["small-mixture", "small-mixture balanced", "qwen3-0.6b"])
        self.assertEqual(rows[1][3], "experts in turn")
        self.assertEqual(sum("--balanced" in command for command in self.commands), 1)
        self.assertEqual(code, 0)

    def test_the_time_is_bounded(self):
        rows, code = self.table(PEER, TEMPER, "qwen3-8b", "--minutes", "0.1")
        self.assertIn("left out: the time is spent", rows[0][3])
        self.assertEqual(code, 1)
        with self.assertRaisesRegex(compare.Failure, "no figures within 1 s"):
            compare.run([sys.executable, "-c", "import time; time.sleep(60)"], 1)

    def test_what_programs_print(self):
        talk = "print('words'); print('{\"a\": 1}')"
        self.assertEqual(compare.run([sys.executable, "-c", talk], 60), {"a": 1})
        for code, why in (("raise SystemExit(4)", "out of memory"),
                          ("raise SystemExit('no GPU')", "exit code 1: no GPU")):
            with self.assertRaisesRegex(compare.Failure, why), contextlib.redirect_stderr(io.StringIO()):
                compare.run([sys.executable, "-c", code], 60)
        with self.assertRaises(compare.Failure):
            compare.run(["/no/such/program"], 60)

    def test_all_figures_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder) / "results.jsonl"
            self.table(PEER, TEMPER, "qwen3-0.6b", "--results", str(results))
            line = json.loads(results.read_text())
        self.assertEqual((line["case"], line["agree"], line["temper"]), ("qwen3-0.6b", True, [TEMPER]))


if __name__ == "__main__":
    unittest.main()
