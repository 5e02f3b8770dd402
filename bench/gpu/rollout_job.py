"""The requests of nano-vLLM's benchmark, for temper_bench_rollout --job: a line for each with the tokens of its prompt
and of its answer.

    python3 bench/gpu/rollout_job.py [REQUESTS [MOST_TOKENS]] > job.txt
"""
import random
import sys

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 256
most = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
random.seed(0)
prompts = [[random.randint(0, 10000) for _ in range(random.randint(100, most))] for _ in range(requests)]
answers = [random.randint(100, most) for _ in range(requests)]
for prompt, answer in zip(prompts, answers):
    print(len(prompt), answer)
