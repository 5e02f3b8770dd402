"""What tools/compare_builds.py runs: the cases, and the models and data they begin with, which are made on the spot.

A case is a list of commands, run one after the other in a folder of its own. `temper` and `test_parity` stand for the
build's programs; whatever else a command names is the same for both builds.
"""
import dataclasses
import importlib.util
import json
import pathlib
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"
STEPS = 20
ROWS = {"train": 400, "eval": 24}  # of each data file: reading more would take longer than training
OPS = ["adamw", "attn", "cross_entropy_loss", "embedding", "global_norm", "linear", "lora_linear", "rms_norm",
       "rotary_pos_emb", "swiglu_mlp"]


@dataclasses.dataclass
class Case:
    name: str
    commands: list
    on_cpu: bool = False  # it names its own device


class Inputs:
    """Models and data in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.data = folder / "data"
        demo = load_module(ROOT / "examples/addition/prepare.py")
        subprocess.run([sys.executable, demo.__file__, self.data], check=True, stdout=subprocess.DEVNULL)
        for path in self.data.glob("*.jsonl"):
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:ROWS[path.stem.split("_")[-1]]]))
        questions = [json.loads(line)["messages"][0] for line in (self.data / "train.jsonl").read_text().splitlines()]
        (self.data / "text.txt").write_text("".join(question["content"] + "\n" for question in questions))
        (self.data / "prompts.jsonl").write_text("".join(json.dumps({"prompt": [question]}) + "\n" for question in questions))
        self.tokenizer = demo.tokenizer()
        for golden in sorted(path.parent for path in GOLDENS.glob("*/golden.safetensors") if (path.parent / "model.safetensors").exists()):
            self.add_golden(golden.name, golden / "golden.safetensors")
        for adapter in sorted((GOLDENS / "adapters").iterdir()):
            if not self.model(base_of(adapter)).exists():
                self.add_golden(base_of(adapter), adapter / "golden.safetensors")

    def model(self, name):
        return self.folder / "models" / name

    def rows(self, *names):
        return [str(self.data / f"{name}.jsonl") for name in names]

    def add_golden(self, name, batch):
        """The golden's model with a tokenizer, which programs ask for, and a batch as rows of tokens."""
        golden, model = GOLDENS / name, self.model(name)
        shutil.copytree(golden, model)
        (model / "golden.safetensors").unlink(missing_ok=True)
        for path in (self.data / "qwen3-tiny").iterdir():
            if path.name.startswith("tokenizer"):
                shutil.copy(path, model)
        vocab = json.loads((golden / "config.json").read_text())["vocab_size"]
        (model / "tokenizer.json").write_text(json.dumps(resized(self.tokenizer, vocab)))
        if vocab < len(self.tokenizer["model"]["vocab"]):
            (model / "tokenizer_config.json").write_text("{}")  # the chat template's tokens are not there
        ids, labels = (integers(batch, key) for key in ("input_ids", "labels"))
        rows = self.data / f"{name}.jsonl"
        rows.parent.mkdir(exist_ok=True)
        rows.write_text(
            "".join(json.dumps({"input_ids": a, "labels": [y if x == y else -100 for x, y in zip(a, b)]}) + "\n"
                    for a, b in zip(ids, labels)))


def base_of(adapter):
    return json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resized(tokenizer, vocab):
    """A tokenizer of `vocab` tokens: with more special ones, or with as many printable characters only."""
    model, added = tokenizer["model"], tokenizer["added_tokens"]
    if vocab < len(model["vocab"]):
        return tokenizer | {"model": model | {"vocab": {chr(33 + i): i for i in range(vocab)}, "merges": []},
                            "added_tokens": []}
    return tokenizer | {"added_tokens": added + [added[0] | {"id": i, "content": f"<|{i}|>"}
                                                 for i in range(added[-1]["id"] + 1, vocab)]}


def integers(path, name):
    """The rows of a matrix of int64 in a safetensors file."""
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    tensor = json.loads(content[8:start])[name]
    begin, end = tensor["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 8}q", content[start + begin:start + end])
    width = tensor["shape"][1]
    return [values[i:i + width] for i in range(0, len(values), width)]


def train(config, *flags):
    """A command that trains by this configuration, written as JSON, which is YAML."""
    return ["temper", "train", config, "--output", "run", *map(str, flags)]


def merged(base, more):
    found = dict(base)
    for key, value in more.items():
        found[key] = merged(found[key], value) if isinstance(value, dict) and isinstance(found.get(key), dict) else value
    return found


def examples(inputs):
    """Every file of examples, with fewer and shorter steps, on the demo's model with random weights."""
    short = ["--train.steps", STEPS, "--data.max_length", 96, "--model.path", inputs.model("demo")]

    def example(path, *flags, rows):
        return train(ROOT / "examples" / path, *short, *flags, "--data.train", json.dumps(inputs.rows(rows)))

    def evaluated(rows):
        return ["--data.eval", json.dumps(inputs.rows(rows)), "--eval.exact_match", 4]

    yield Case("examples/addition", [example("addition/run.yaml", "--eval.every_steps", 10,
                                             "--checkpoint.every_steps", 10, *evaluated("eval"), rows="train")])
    yield Case("examples/lora", [example("lora/run.yaml", *evaluated("minus_eval"), rows="minus_train")])
    adapters = (ROOT / "examples/adapters/run.yaml").read_text().replace("build/demo", str(inputs.data))
    (inputs.folder / "adapters.yaml").write_text(adapters.replace("steps: 200", "steps: 10"))
    yield Case("examples/adapters", [train(inputs.folder / "adapters.yaml", *short, "--eval.exact_match", 4)])
    yield Case("examples/preference/both", [example("preference/both.yaml", rows="both_train")])
    yield Case("examples/preference", [example("preference/run.yaml", *evaluated("pairs_eval"), rows="pairs_train")])
    yield Case("examples/qwen3_gpu", [example("qwen3_gpu/run.yaml", "--device", "cpu", *evaluated("eval"),
                                              rows="train")])
    yield Case("examples/plugin", [
        ["cp", ROOT / "examples/plugin/toy.c", "."],
        ["make", "-s", "-f", ROOT / "examples/plugin/Makefile", f"INCLUDE={ROOT / 'include'}"],
        example("addition/run.yaml", "--data.eval", "[]", "--eval.exact_match", 0, "--eval.every_steps", 0, "--plugins",
                "[libtoy.so]", "--device", "toy", rows="train")], on_cpu=True)


def parity(inputs):
    """The models and batches of tests/goldens, trained with fast and with eager kernels; and the test itself."""
    for name in sorted(path.parent.name for path in GOLDENS.glob("*/golden.safetensors")):
        config = {"model": {"path": str(inputs.model(name))},
                  "data": {"train": inputs.rows(name), "packing": "none", "max_length": 64},
                  "train": {"steps": 5, "rows_per_step": 2, "optimizer": {"lr": 1e-3}}}
        eager = {f"{op}_implementation": "eager" for op in OPS}
        yield Case(f"parity/{name}", [train(config)])
        yield Case(f"parity/{name}/eager", [train(merged(config, {"model": {"ops_implementation": eager}}))])
        yield Case(f"parity/{name}/bfloat16", [train(merged(config, {"model": {"dtype": "bfloat16"}}))])
    for folder in sorted((GOLDENS / "adapters").iterdir()):
        base = base_of(folder)
        config = {"model": {"path": str(inputs.model(base))}, "data": {"train": inputs.rows(base), "packing": "none", "max_length": 64},
                  "adapters": [{"name": "a", "from": str(folder)}],
                  "train": {"steps": 5, "rows_per_step": 2, "optimizer": {"lr": 1e-3}}}
        yield Case(f"parity/{folder.name}", [train(config)])
    yield Case("parity/test_parity", [["test_parity", "--gtest_brief=0"]])


def sft(inputs):
    base = {"model": {"path": str(inputs.model("qwen3"))},
            "data": {"train": inputs.rows("train"), "eval": inputs.rows("eval"), "max_length": 96},
            "train": {"steps": STEPS, "rows_per_step": 4, "optimizer": {"lr": 1e-3},
                      "schedule": {"type": "cosine", "warmup_steps": 5}},
            "checkpoint": {"every_steps": 10}}
    lora = {"adapters": [{"name": "a", "rank": 8}], "train": {"optimizer": {"lr": 3e-3}}}
    bfloat16 = {"model": {"dtype": "bfloat16"}}
    several = {"adapters": [{"name": "a", "rank": 8, "train": inputs.rows("minus_train")},
                            {"name": "b", "rank": 4, "alpha": 4, "lr": 1e-2, "target_modules": ["q_proj", "down_proj"],
                             "train": inputs.rows("larger_train")},
                            {"name": "c", "rank": 2, "dropout": 0.1, "rslora": True, "steps": 15}]}
    variants = {
        "float32": {}, "bfloat16": bfloat16,
        "bfloat16_without_masters": merged(bfloat16, {"train": {
            "gradients": "bfloat16", "master_weights": False, "optimizer": {"moments": "bfloat16"}}}),
        "llama": {"model": {"path": str(inputs.model("llama"))}},
        "qwen2": {"model": {"path": str(inputs.model("qwen2"))}},
        "demo": {"model": {"path": str(inputs.model("demo"))}},
        "unpacked": {"data": {"packing": "none"}},
        "micro_batches": {"train": {"micro_batch_tokens": 128}},
        "micro_batches_bfloat16": merged(bfloat16, {"train": {"micro_batch_tokens": 128, "gradients": "bfloat16"}}),
        "selective": {"train": {"activation_checkpointing": "selective"}},
        "full": {"train": {"activation_checkpointing": "full"}},
        "full_bfloat16": merged(bfloat16, {"train": {"activation_checkpointing": "full"}}),
        "z_loss": {"train": {"z_loss": 1e-2}},
        "no_clipping": {"train": {"max_grad_norm": 0}},
        "text": {"data": {"train": [str(inputs.data / "text.txt")], "overflow": "split"}},
        "lora": lora, "lora_bfloat16": merged(lora, bfloat16),
        "lora_8_bits": merged(lora, {"model": {"dtype": "bfloat16", "base_dtype": "float8_e4m3fn"}}),
        "lora_dropout": {"adapters": [{"name": "a", "rank": 8, "dropout": 0.1, "rslora": True}]},
        "lora_head": {"adapters": [{"name": "a", "rank": 4, "target_modules": ["all-linear", "embed_tokens", "lm_head"]}]},
        "lora_whole_modules": {"model": {"path": str(inputs.model("qwen2"))}, "adapters": [
            {"name": "a", "rank": 4, "bias": "all", "target_modules": ["q_proj", "up_proj"],
             "modules_to_save": ["model.norm", "lm_head"]}]},
        "lora_full": merged(lora, {"train": {"activation_checkpointing": "full"}}),
        "lora_unpacked": merged(lora, {"data": {"packing": "none"}}),
        "several_adapters": several,
        "several_adapters_bfloat16": merged(several, bfloat16 | {"train": {"micro_batch_tokens": 128}}),
    }
    for name, more in variants.items():
        yield Case(f"sft/{name}", [train(merged(base, more))])
    yield Case("sft/resumed", [train(base, "--train.steps", 10), train(base)])
    yield Case("sft/several_threads", [train(base, "--train.threads", 2)])


def preference(inputs):
    base = {"recipe": "preference", "model": {"path": str(inputs.model("qwen3"))},
            "data": {"train": inputs.rows("pairs_train"), "eval": inputs.rows("pairs_eval"), "max_length": 48},
            "train": {"steps": STEPS, "rows_per_step": 2, "optimizer": {"lr": 1e-4}},
            "checkpoint": {"every_steps": 10}}
    lora = {"adapters": [{"name": "a", "rank": 8}]}
    judged = {"data": {"train": inputs.rows("judged_train")}, "preference": {"loss": "kto"}}
    variants = {
        "dpo": {}, "dpo_lora": lora, "dpo_lora_bfloat16": merged(lora, {"model": {"dtype": "bfloat16"}}),
        "dpo_reference": {"model": {"path": str(inputs.model("demo"))}, "preference": {
            "reference": str(inputs.model("other")), "precompute": False}},
        "dpo_lora_full": merged(lora, {"train": {"activation_checkpointing": "full"}}),
        "dpo_unshared": {"preference": {"share_prompts": False}, "data": {"packing": "none"}},
        "dpo_smoothed": {"preference": {"label_smoothing": 0.1, "margin": 0.5}},
        "simpo": {"preference": {"length_normalized": True, "reference_free": True, "beta": 2, "margin": 1}},
        "ipo_lora": merged(lora, {"preference": {"loss": "ipo"}}),
        "orpo": {"preference": {"loss": "orpo"}}, "orpo_lora": merged(lora, {"preference": {"loss": "orpo"}}),
        "kto": judged, "kto_lora": merged(judged, lora),
        "several_adapters": {"adapters": [{"name": "a", "rank": 8}, {"name": "b", "rank": 4, "lr": 1e-3}]},
    }
    for name, more in variants.items():
        yield Case(f"preference/{name}", [train(merged(base, more))])


def grpo(inputs):
    base = {"recipe": "grpo", "model": {"path": str(inputs.model("demo"))},
            "data": {"train": inputs.rows("prompts"), "max_length": 64},
            "grpo": {"group_size": 4, "prompts_per_rollout": 4, "rewards": [{"type": "pattern", "pattern": "[a-e]"}],
                     "sampling": {"max_new_tokens": 12}},
            "train": {"steps": 6, "optimizer": {"lr": 1e-3}}, "checkpoint": {"every_steps": 2}}
    kl = {"grpo": {"loss": "grpo", "kl": {"beta": 0.1}}}
    twice = {"grpo": {"updates_per_rollout": 2, "epochs": 2}}
    truncated = {"grpo": {"sampling": {"top_p": 0.8}, "correction": {"type": "token", "rollout_log_probs": "truncated"}}}
    ppo = {"grpo": {"loss": "ppo"}}
    variants = {
        "grpo": {}, "kl": kl, "several_updates": twice, "truncated": truncated,
        "kl_bfloat16": merged(kl, {"model": {"dtype": "bfloat16"}}),
        "lora": merged(kl, {"adapters": [{"name": "a", "rank": 8}]}),
        "reinforce_pp": {"grpo": {"loss": "reinforce_pp", "kl": {"beta": 0.1}}},
        "ppo": ppo, "ppo_several_updates": merged(merged(ppo, twice), {"grpo": {"kl": {"beta": 0.1}}}),
    }
    for name, more in variants.items():
        yield Case(f"grpo/{name}", [train(merged(base, more))])
    yield Case("grpo/resumed", [train(merged(merged(base, kl), twice), "--train.steps", 3), train(merged(merged(base, kl), twice))])


def generation(inputs):
    trained, demo = inputs.model("qwen3_trained"), inputs.model("demo")
    segment = "'/$#+3(6*1,"  # comes again and again in what these models learned

    def generate(model, *flags, prompt="What is 47 + 38?"):
        return ["temper", "generate", model, "--threads", "1", "--quiet", "-p", prompt, "-n", "40", *map(str, flags)]

    for family in ("llama", "qwen2", "qwen3"):
        yield Case(f"generate/{family}", [generate(inputs.model(f"{family}_trained"), "--raw", "--greedy",
                                                   prompt=3 * segment)])
    yield Case("generate/bfloat16", [generate(trained, "--raw", "--greedy", "--dtype", "bfloat16", prompt=3 * segment)])
    yield Case("generate/8_bits", [generate(demo, "--greedy", "--base-dtype", "float8_e4m3fn")])
    yield Case("generate/sampled", [generate(trained, "--raw", "-t", 3, "--top-k", 20, "--top-p", 0.95, "--seed", seed,
                                             "--repetition-penalty", 1.1, prompt=segment) for seed in (1, 2, 3)]
               + [generate(demo, "-t", 1, "--seed", 4)])
    adapters = GOLDENS / "adapters"
    qwen2, adapted = inputs.model("qwen2"), adapters / "qwen2_all_biases"
    yield Case("generate/adapter", [generate(qwen2, "--adapter", adapted, "--greedy"),
                                    generate(qwen2, "--adapter", adapters / "qwen2_bias", "-t", 1, "--dtype", "bfloat16")])
    yield Case("generate/merged", [["temper", "merge", adapted, "merged", "--base", qwen2],
                                   generate("merged", "--greedy")])
    yield Case("generate/init", [["temper", "init", inputs.data / "qwen3-tiny", "new", "--seed", "3"],
                                 generate("new", "-t", 1)])


def all_cases(inputs):
    for group in (examples, parity, sft, preference, grpo, generation):
        yield from group(inputs)
