#!/usr/bin/env python3
"""What tools/sweep_layouts.py takes as all cases, and as few that have all pairs."""
import itertools
import unittest

import sweep_layouts as sweep


class SweepLayouts(unittest.TestCase):
    def setUp(self):
        self.cases = sweep.all_cases(list(sweep.MODELS), list(sweep.WAYS), [2, 4, 8])

    def test_all_cases_are_different_and_have_every_product(self):
        self.assertEqual(len({tuple(sorted(case.items())) for case in self.cases}), len(self.cases))
        for ranks in (2, 4, 8):
            degrees = {tuple(case[axis] for axis in ["pipeline", *sweep.AXES]) for case in self.cases
                       if case["model"] == "mixture" and sweep.ranks_of(case) == ranks}
            # so many ways to spread the factors 2 over stages and axes, without 8 stages
            twos = ranks.bit_length() - 1
            self.assertEqual(len(degrees), {1: 6, 2: 21, 3: 55}[twos])

    def test_what_is_refused_in_stages_has_one(self):
        cases = sweep.all_cases(["dense", "mixture"], ["full", "grpo"], [4], {("dense", "grpo"): "[parallel.pipeline]"})
        staged = {(case["model"], case["way"]) for case in cases if case["pipeline"] > 1}
        self.assertEqual(staged, {("dense", "full"), ("mixture", "full"), ("mixture", "grpo")})
        self.assertIn(("dense", "grpo"), {(case["model"], case["way"]) for case in cases})

    def test_few_have_every_pair_that_occurs(self):
        wanted = [*((axis, degree) for axis in sweep.AXES for degree in (1, 2, 4, 8)),
                  *(("pipeline", stages) for stages in sweep.STAGES),
                  *(("pipeline_chunks", chunks) for chunks in sorted({chunks for chunks, _ in sweep.SCHEDULES})),
                  *(("pipeline_schedule", schedule) for _, schedule in sweep.SCHEDULES),
                  *(("shard_level", level) for level in (1, 2, 3)), *(("context_method", name) for name in sweep.METHODS),
                  *(("model", name) for name in sweep.MODELS), *(("way", name) for name in sweep.WAYS)]

        def pairs(cases):
            return {(case["pipeline"] > 1, pair) for case in cases for pair in itertools.combinations(
                [(name, value) for name, value in wanted if case.get(name) == value], 2)}

        for name, value in wanted:
            self.assertTrue(any(case.get(name) == value for case in self.cases), (name, value))
        chosen = sweep.cover(self.cases)
        self.assertEqual(pairs(chosen), pairs(self.cases))
        self.assertLess(len(chosen), 160)
        self.assertIn((False, (("context", 8), ("model", "sinks"))), pairs(chosen))
        for method in ("ring", "usp"):
            self.assertIn((False, (("context_method", method), ("way", "grpo"))), pairs(chosen))
        self.assertIn((True, (("tensor", 2), ("expert", 2))), pairs(chosen))
        self.assertIn((True, (("pipeline_chunks", 2), ("model", "latent"))), pairs(chosen))
        self.assertIn((True, (("pipeline_schedule", "zb_h1"), ("model", "hybrid"))), pairs(chosen))

    def test_they_are_the_same_each_time(self):
        self.assertEqual(sweep.cover(self.cases), sweep.cover(list(self.cases)))


if __name__ == "__main__":
    unittest.main()
