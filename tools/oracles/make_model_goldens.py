#!/usr/bin/env python3
"""Writes tests/goldens/*_trained with transformers: a small trained model of each family, and what transformers makes of it.

Usage: make_model_goldens.py [--train] [CASE...]     needs torch and transformers; `make test` needs neither

Without --train a model that is there keeps its weights, and only what transformers makes of it is recorded again.

The models learn to continue a segment of random tokens that comes again and again, each time with every token replaced by
its successor in a fixed permutation. Only attention can find where the segment stood before, so the trained weights are
peaked and every component matters. Weights are then rounded to bfloat16 and kept so: float32 and bfloat16 runs have the
same weights, and one reference, computed by transformers in float32, serves both.

A case is a model's folder as transformers saves it, and golden.safetensors next to it:
  input_ids, labels            one batch; the loss is the mean over all labels that are not -100
  hidden.I, logits, loss       hidden.I is the input of layer I, the last one is after the final norm
  aux_loss                     of mixtures that balance the loads of experts: the load balancing loss without its factor,
                               which loss leaves out and gradients count
  grad.NAME                    of every weight
  adamw.losses, .grad_norms    of five steps on that batch; norms before clipping
  adamw.grad.I.NAME            gradients before clipping at steps 1 and 2 (at step 0 they are grad.NAME)
  adamw.weight.NAME            after the steps
  packed.input_ids, .position_ids, .logits   documents in one row, each computed alone
  greedy                       the batch's first row, continued
and the metadata `adamw`: the settings of these steps. Also printed: how far transformers' own bfloat16 run is from this
reference, in units of 2^-8, as relative norms.
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, DeepseekV3Config, Gemma3TextConfig, Glm4Config, GptOssConfig,
                          GraniteConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, Phi3Config, Qwen2Config,
                          Qwen3Config, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3MoeConfig, Qwen3NextConfig,
                          SmolLM3Config)

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens"
VOCAB, WIDTH, ROWS = 40, 32, 4
SHARED = dict(vocab_size=VOCAB, num_hidden_layers=2, max_position_embeddings=256, rms_norm_eps=1e-3,
              bos_token_id=None, eos_token_id=None, pad_token_id=None)
CASES = {
    # Groups of three queries, every bias, scaled frequencies, a head of its own.
    "llama_trained": LlamaConfig(hidden_size=48, intermediate_size=48, num_attention_heads=6, num_key_value_heads=2,
                                 head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                                 rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=4.0,
                                                      low_freq_factor=1.0, high_freq_factor=4.0,
                                                      original_max_position_embeddings=64), **SHARED),
    # A sliding window in the second layer that hides all but the last segment, biases of q, k and v, a tied head.
    "qwen2_trained": Qwen2Config(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
                                 head_dim=16, tie_word_embeddings=True, use_sliding_window=True, sliding_window=9,
                                 max_window_layers=1,
                                 rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **SHARED),
    # Norms of heads, heads as wide as kernels for GPUs like them.
    "qwen3_trained": Qwen3Config(hidden_size=24, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
                                 head_dim=64, tie_word_embeddings=False,
                                 rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **SHARED),
    # Latents of queries and keys, interleaved rotation, YaRN whose two factors differ, biases. Layers without experts.
    "deepseek_v3_trained": DeepseekV3Config(hidden_size=32, intermediate_size=48, num_attention_heads=4,
                                            num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16,
                                            qk_rope_head_dim=8, v_head_dim=12, attention_bias=True,
                                            tie_word_embeddings=False, first_k_dense_replace=2, rope_interleave=True,
                                            rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0,
                                                                 mscale=1.4, mscale_all_dim=0.7, beta_fast=32.0,
                                                                 beta_slow=1.0, original_max_position_embeddings=32),
                                            **SHARED),
    # Queries from the hidden states by one matrix, rotation by halves.
    "deepseek_v3_plain_trained": DeepseekV3Config(hidden_size=32, intermediate_size=48, num_attention_heads=4,
                                                  num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=24,
                                                  qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16,
                                                  tie_word_embeddings=False, first_k_dense_replace=2,
                                                  rope_interleave=False,
                                                  rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
                                                  **SHARED),
    # Weights of experts that sum to one, the load balancing loss.
    "qwen3_moe_trained": Qwen3MoeConfig(hidden_size=24, intermediate_size=40, moe_intermediate_size=16, num_experts=6,
                                        num_experts_per_tok=2, norm_topk_prob=True, num_attention_heads=4,
                                        num_key_value_heads=2, head_dim=16, tie_word_embeddings=False,
                                        output_router_logits=True, router_aux_loss_coef=0.05,
                                        rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **SHARED),
    # A sliding window in all layers, experts under other names in files.
    "mixtral_trained": MixtralConfig(hidden_size=24, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2,
                                     num_attention_heads=4, num_key_value_heads=2, head_dim=16, sliding_window=12,
                                     tie_word_embeddings=False, output_router_logits=True, router_aux_loss_coef=0.02,
                                     rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **SHARED),
}
# Of other families the smallest models that learn the task, and gradients of the first step alone.
TINY = SHARED | dict(hidden_size=24, intermediate_size=24, tie_word_embeddings=True)
NARROW = dict(num_attention_heads=3, num_key_value_heads=1)  # heads of 8
WIDE = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16)
PLAIN_ROPE = dict(rope_type="default", rope_theta=100.0)
TINY_CASES = {
    # A window in every layer, heads that are together wider than the hidden states.
    "mistral_trained": MistralConfig(num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=9,
                                     rope_parameters=PLAIN_ROPE, **TINY),
    # Another theta and another window by layer, a scale of attention that no head has.
    "gemma3_text_trained": Gemma3TextConfig(
        sliding_window=9, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=12,
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=50.0),
                             full_attention=dict(rope_type="linear", rope_theta=200.0, factor=2.0)), **WIDE, **TINY),
    # Three quarters of each head are rotated; a window in every layer.
    "phi3_trained": Phi3Config(sliding_window=12, original_max_position_embeddings=256,
                               rope_parameters=PLAIN_ROPE | dict(partial_rotary_factor=0.75), **WIDE, **TINY),
    # The second layer is not rotated.
    "smollm3_trained": SmolLM3Config(no_rope_layer_interval=2, rope_parameters=PLAIN_ROPE, **NARROW,
                                     **(TINY | dict(num_hidden_layers=3, intermediate_size=12))),
    "olmo2_trained": Olmo2Config(rope_parameters=PLAIN_ROPE, **NARROW, **TINY),
    "granite_trained": GraniteConfig(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7,
                                     logits_scaling=1.5, mlp_bias=True, rope_parameters=PLAIN_ROPE,
                                     **NARROW, **TINY),
    "glm4_trained": Glm4Config(rope_parameters=PLAIN_ROPE | dict(partial_rotary_factor=0.5),
                               **WIDE, **(TINY | dict(eos_token_id=-1))),
}
TINY_CASES |= {
    # A window in the first layer, sinks, biases of everything, a limit of the gate that many values reach.
    "gpt_oss_trained": GptOssConfig(
        num_local_experts=4, num_experts_per_tok=2, sliding_window=9, swiglu_limit=2.5, output_router_logits=True,
        router_aux_loss_coef=0.02, rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=32.0,
                                                        beta_slow=1.0, truncate=False,
                                                        original_max_position_embeddings=64),
        **WIDE, **(TINY | dict(hidden_size=32, intermediate_size=24, tie_word_embeddings=False))),
}
# A layer of the gated delta rule, then one of attention; grouped value heads, keys and values of unequal widths.
DELTA = dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4, partial_rotary_factor=0.5,
             rope_parameters=PLAIN_ROPE | dict(partial_rotary_factor=0.5), **WIDE, **TINY)
MIXED = dict(moe_intermediate_size=16, shared_expert_intermediate_size=8, num_experts=4, num_experts_per_tok=2,
             output_router_logits=True, router_aux_loss_coef=0.02)
TINY_CASES |= {
    "qwen3_5_moe_text_trained": Qwen3_5MoeTextConfig(**MIXED, **DELTA),
    "qwen3_5_text_trained": Qwen3_5TextConfig(**(DELTA | dict(linear_conv_kernel_dim=3))),
    "qwen3_next_trained": Qwen3NextConfig(**MIXED, **DELTA),
}
CASES |= TINY_CASES
# Steps, weight decay and seed of those that do not learn their task with what the others have, or whose gradients cancel
# out more than bfloat16 can show.
TRAINING = {"qwen3_moe_trained": (2500, 0.01, 11), "mixtral_trained": (2500, 0.01, 11),
            "granite_trained": (2500, 0.1, 12), "olmo2_trained": (2000, 0.3, 12),
            "gpt_oss_trained": (2500, 0.3, 12)}
ADAMW = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-4, weight_decay=0.1, max_grad_norm=1.0, decay_all=False)
SUCCESSOR = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(5))


def make_rows(count, width, generator):
    """[count, width] ids, and how long the first segment of each is: what follows can be known."""
    periods = torch.randint(5, 10, (count,), generator=generator)
    ids = torch.randint(0, VOCAB, (count, width), generator=generator)
    for row, period in zip(ids, periods.tolist()):
        for i in range(period, width):
            row[i] = SUCCESSOR[row[i - period]]
    return ids, periods


def predictable(ids, periods):
    return torch.where(torch.arange(ids.shape[1]) >= periods[:, None], ids, -100)


def train(config, steps, weight_decay, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.2 * torch.randn(parameter.shape)
        elif parameter.ndim == 1:
            parameter.data = 0.3 * torch.randn(parameter.shape)
        else:
            parameter.data = torch.randn(parameter.shape) * (0.5 if "embed" in name else parameter.shape[1] ** -0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1, (step + 1) / 50) * min(1, (steps - step) / 400)
        ids, periods = make_rows(48, WIDTH, generator)
        loss = model(input_ids=ids, labels=predictable(ids, periods), use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 199:
            print(f"  step {step + 1}: loss {loss.item():.4f}", flush=True)
    return model.to(torch.bfloat16)


def delta_rule(query, key, value, g, beta, initial_state=None, **options):
    """The gated delta rule token by token in float64: gradients of its gates cancel out in transformers' chunks."""
    assert options["use_qk_l2norm_in_kernel"]
    q, k = (x.double() * (x.double().square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (query, key))
    q, k = (x.repeat_interleave(value.shape[2] // x.shape[2], 2) for x in (q * q.shape[-1] ** -0.5, k))
    state = q.new_zeros(value.shape[0], value.shape[2], k.shape[-1], value.shape[-1])
    if initial_state is not None:
        state = initial_state.double()
    results = []
    for t in range(value.shape[1]):
        state = state * g[:, t, :, None, None].double().exp()
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        update = (value[:, t].double() - known) * beta[:, t, :, None].double()
        state = state + k[:, t, :, :, None] * update[:, :, None]
        results.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(results, 1).to(query.dtype), state.float() if options["output_final_state"] else None


def use_delta_rule(model):
    for module in model.modules():
        for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"):
            if type(module).__name__.endswith("GatedDeltaNet"):
                setattr(sys.modules[type(module).__module__], name, delta_rule)
                setattr(module, name, delta_rule)


def batch():
    """Ids, and labels of which every fourth is wrong: gradients are then far from zero however good the model is."""
    generator = torch.Generator().manual_seed(17)
    ids, periods = make_rows(ROWS, WIDTH, generator)
    labels = predictable(ids, periods)
    wrong = (torch.rand(ids.shape, generator=generator) < 0.25) & (labels != -100)
    return ids, torch.where(wrong, torch.randint(0, VOCAB, ids.shape, generator=generator), labels), periods


def forward_and_gradients(model, ids, labels):
    model.zero_grad()
    out = model(input_ids=ids, labels=labels, output_hidden_states=True, use_cache=False)
    out.loss.backward()
    found = {f"hidden.{i}": hidden for i, hidden in enumerate(out.hidden_states)}
    balance = getattr(out, "aux_loss", None)
    found |= {"logits": out.logits, "loss": out.loss.reshape(1)}
    if balance is not None:
        found["aux_loss"] = balance.reshape(1)
        found["loss"] = found["loss"] - model.config.router_aux_loss_coef * balance
    found |= {"grad." + name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: value.detach().clone() for name, value in found.items()}


def five_steps(model, ids, labels, gradients_of):
    settings = ADAMW
    vectors = [p for name, p in model.named_parameters() if p.ndim == 1 or name.endswith("bias")]
    matrices = [p for name, p in model.named_parameters() if p.ndim > 1 and not name.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=settings["lr"],
                                  betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"],
                                  weight_decay=settings["weight_decay"])
    losses, norms, found = [], [], {}
    for step in range(5):
        computed = forward_and_gradients(model, ids, labels)
        losses.append(computed["loss"].item())
        if step in gradients_of:
            found |= {f"adamw.{name.replace('grad.', f'grad.{step}.', 1)}": value for name, value in computed.items()
                      if name.startswith("grad.")}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"]).item())
        optimizer.step()
    assert min(norms) > 1.5 * settings["max_grad_norm"], "clipping must matter"
    found |= {"adamw.weight." + name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return found | {"adamw.losses": torch.tensor(losses), "adamw.grad_norms": torch.tensor(norms)}


@torch.no_grad()
def packed(model, ids):
    """The last row's beginning, one token, and two other rows' beginnings."""
    documents = [ids[3, :15], ids[2, :1], ids[1, :19], ids[2, :12]]
    logits = [model(input_ids=document[None], use_cache=False).logits for document in documents]
    return {"packed.input_ids": torch.cat(documents)[None],
            "packed.position_ids": torch.cat([torch.arange(len(document)) for document in documents])[None],
            "packed.logits": torch.cat(logits, 1)}


def print_bfloat16(folder, ids, labels, expected):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    found = forward_and_gradients(model, ids, labels)
    for name, value in expected.items():
        error = (found[name].float() - value).norm() / value.norm() * 256
        print(f"  transformers in bfloat16: {name} {error:.2f} x 2^-8")


def make(name, config, train_again):
    folder = GOLDENS / name
    if train_again or not (folder / "model.safetensors").exists():
        shutil.rmtree(folder, ignore_errors=True)
        usual = (2000, 0.3, 11) if name in TINY_CASES else (1000, 0.01, 11)
        train(config, *TRAINING.get(name, usual)).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    use_delta_rule(model)
    ids, labels, periods = batch()
    golden = forward_and_gradients(model, ids, labels)
    known = predictable(ids, periods)[:, 1:]
    probabilities = golden["logits"][:, :-1].softmax(-1)
    right = (probabilities.argmax(-1) == known)[known != -100].float().mean()
    peak = probabilities.amax(-1)[known != -100].mean()
    print(f"{name}: {right:.3f} of the predictable tokens are right, their mean largest probability is {peak:.3f}")
    assert right > 0.95 and peak > 0.9, "the model has not learned its task"
    print_bfloat16(folder, ids, labels, golden)
    golden |= packed(model, ids) | {"input_ids": ids, "labels": labels}
    golden["greedy"] = model.generate(ids[:1], attention_mask=torch.ones_like(ids[:1]), do_sample=False,
                                      max_new_tokens=16)
    golden |= five_steps(model, ids, labels, () if name in TINY_CASES else (1, 2))
    save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors",
              metadata={"adamw": json.dumps(ADAMW)})
    print(f"{name}: {sum(p.numel() for p in model.parameters())} weights, "
          f"{sum(f.stat().st_size for f in folder.iterdir()) // 1024} KiB")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    for case in [name for name in sys.argv[1:] if name != "--train"] or CASES:
        make(case, CASES[case], "--train" in sys.argv)
