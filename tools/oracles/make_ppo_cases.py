#!/usr/bin/env python3
"""Numbers of PPO with a critic, in float64 by numpy alone: tests/goldens/policies/ppo.json.

    python3 tools/oracles/make_ppo_cases.py [--trl]

Answers are rows of padded matrices with masks, as trainers in Python have them, so that the sums are formed in another
way than in src/losses. Gradients are central differences of the losses. --trl compares the parts that TRL has as
functions (whitening over masked tokens, masked means) with TRL itself and prints the largest difference.
"""
import json
import pathlib
import sys

import numpy as np

LENGTHS = [5, 1, 8, 3, 6, 2]
CASES = [
    # kl, beta, gamma, lambda, value clip, ratio clip, bootstraps
    ("k1", 0.0, 1.0, 0.95, 0.2, 0.2, False),
    ("k1", 0.1, 1.0, 0.95, 0.2, 0.2, False),
    ("k2", 0.3, 0.97, 0.9, 0.1, 0.1, True),
    ("k3", 0.2, 0.9, 1.0, 0.0, 0.3, True),
    ("k3", 0.05, 0.99, 0.0, 0.5, 0.2, False),
]


def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()


def masked_whiten(values, mask, eps=1e-8):
    mean = masked_mean(values, mask)
    count = mask.sum()
    variance = masked_mean((values - mean) ** 2, mask) * count / (count - 1)
    return (values - mean) / np.sqrt(variance + eps)


def estimate(kl, log_ratio):  # log p_reference - log p
    return {"k1": -log_ratio, "k2": 0.5 * log_ratio**2, "k3": np.exp(log_ratio) - 1 - log_ratio}[kl]


def generalized_advantages(rewards, values, after, mask, gamma, lam):
    """From the definition, answer by answer: sums over what follows."""
    advantages = np.zeros_like(values)
    for row in range(len(values)):
        tokens = int(mask[row].sum())
        behind = np.append(values[row, 1:tokens], after[row])
        surprise = rewards[row, :tokens] + gamma * behind - values[row, :tokens]
        for t in range(tokens):
            powers = (gamma * lam) ** np.arange(tokens - t)
            advantages[row, t] = (powers * surprise[t:]).sum()
    return advantages


def policy_loss(now, old, advantages, mask, clip):
    ratio = np.exp(now - old)
    losses = np.maximum(-advantages * ratio, -advantages * np.clip(ratio, 1 - clip, 1 + clip))
    return masked_mean(losses, mask)


def value_loss(values, old_values, returns, mask, clip):
    squares = (values - returns) ** 2
    if clip > 0:
        held = np.clip(values, old_values - clip, old_values + clip)
        squares = np.maximum(squares, (held - returns) ** 2)
    return 0.5 * masked_mean(squares, mask)


def gradient(loss, at, mask, step=1e-6):
    slopes = np.zeros_like(at)
    for place in zip(*np.nonzero(mask)):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        slopes[place] = (loss(up) - loss(down)) / (2 * step)
    return slopes


def far_from_kinks(now, old, values, old_values, returns, clip, value_clip):
    """Central differences need smooth places."""
    ratio = np.exp(now - old)
    near = min(np.abs(ratio - (1 - clip)).min(), np.abs(ratio - (1 + clip)).min())
    if value_clip > 0:
        near = min(near, np.abs(np.abs(values - old_values) - value_clip).min())
        held = np.clip(values, old_values - value_clip, old_values + value_clip)
        apart = np.abs(np.abs(values - returns) - np.abs(held - returns))
        near = min(near, apart[apart > 0].min())
    return near > 1e-4


def make(number, case):
    kl, beta, gamma, lam, value_clip, clip, bootstraps = case
    for seed in range(1000):
        random = np.random.default_rng(1000 * number + seed)
        shape = (len(LENGTHS), max(LENGTHS))
        mask = (np.arange(shape[1])[None, :] < np.array(LENGTHS)[:, None]).astype(float)
        old = -random.gamma(1.5, 1.0, shape)
        now = old + random.normal(0, 0.3, shape)
        reference = old + random.normal(0, 0.5, shape)
        values = random.normal(0.3, 0.4, shape)
        new_values = values + random.normal(0, 0.3, shape)
        score = random.normal(0.5, 1.0, shape[0])
        after = np.where(random.random(shape[0]) < 0.5, random.normal(0, 0.5, shape[0]), 0) * bootstraps
        rewards = -beta * estimate(kl, reference - old) * mask
        rewards[np.arange(shape[0]), np.array(LENGTHS) - 1] += score
        raw = generalized_advantages(rewards, values, after, mask, gamma, lam)
        returns = (raw + values) * mask
        advantages = masked_whiten(raw, mask) * mask
        if far_from_kinks(now, old, new_values, values, returns, clip, value_clip):
            break
    flat = mask.astype(bool)
    variance = np.var(returns[flat], ddof=1)
    by_now = gradient(lambda x: policy_loss(x, old, advantages, mask, clip), now, mask)
    by_values = gradient(lambda x: value_loss(x, values, returns, mask, value_clip), new_values, mask)

    def cut(matrix):
        return [[float(x) for x in row[: LENGTHS[i]]] for i, row in enumerate(matrix)]

    return raw, mask, {
        "kl": kl, "beta": beta, "gamma": gamma, "lambda": lam, "value_clip": value_clip, "clip": clip,
        "rewards": [float(x) for x in score], "after": [float(x) for x in after],
        "old": cut(old), "now": cut(now), "reference": cut(reference), "values": cut(values),
        "new_values": cut(new_values), "advantages": cut(advantages), "returns": cut(returns),
        "explained_variance": float(1 - np.var((returns - values)[flat], ddof=1) / variance),
        "policy_loss": float(policy_loss(now, old, advantages, mask, clip)), "policy_gradients": cut(by_now),
        "value_loss": float(value_loss(new_values, values, returns, mask, value_clip)),
        "value_gradients": cut(by_values),
    }


def compare_with_trl(parts):
    import torch
    from trl import core  # of TRL up to 0.15, which has them

    largest = 0.0
    for values, mask in parts:
        tensors = torch.tensor(values), torch.tensor(mask).bool()
        theirs = core.masked_whiten(*tensors).numpy()
        largest = max(largest, np.abs((theirs - masked_whiten(values, mask)) * mask).max())
        largest = max(largest, abs(float(core.masked_mean(*tensors)) - masked_mean(values, mask)))
    print(f"TRL's whitening and means differ by at most {largest:.2e}")


def main():
    made = [make(number, case) for number, case in enumerate(CASES)]
    path = pathlib.Path(__file__).parents[2] / "tests/goldens/policies/ppo.json"
    path.write_text(json.dumps({"cases": [case for _, _, case in made]}, separators=(",", ":")) + "\n")
    print(f"{len(made)} cases in {path}")
    if "--trl" in sys.argv:
        compare_with_trl([(raw, mask) for raw, mask, _ in made])


if __name__ == "__main__":
    main()
