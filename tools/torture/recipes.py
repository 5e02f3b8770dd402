"""Configurations of the runs that are disturbed; {model} and {rows} are folders."""

SFT = """model: {{path: {model}}}
data: {{train: {rows}/train.jsonl, max_length: 48}}
train: {{steps: 8, rows_per_step: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2, keep_last: 2}}
"""
PREFERENCE = """recipe: preference
model: {{path: {model}}}
data: {{train: {rows}/pairs.jsonl, max_length: 48}}
train: {{steps: 6, rows_per_step: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2}}
"""
DISTILL = """recipe: distill
distill: {{teacher: {model}}}
model: {{path: {model}}}
data: {{train: {rows}/train.jsonl, max_length: 48}}
train: {{steps: 6, rows_per_step: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2}}
"""
GRPO = """recipe: grpo
model: {{path: {model}}}
data: {{train: {rows}/prompts.jsonl, max_length: 48}}
grpo: {{group_size: 4, prompts_per_rollout: 4, sampling: {{max_new_tokens: 8}}, rewards: [{{type: length, target: 5}}]}}
train: {{steps: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2}}
"""
