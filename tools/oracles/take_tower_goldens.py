#!/usr/bin/env python3
"""Takes the towers out of recorded cases of models that read pictures, for tests/goldens/towers.

Usage: take_tower_goldens.py RECORDED CASE...     needs jax, numpy and safetensors; `make test` needs none of them

RECORDED/CASE is as take_text_goldens.py has it. A case of the project is that folder's config.json, the tensors of its
tower, and golden.safetensors:
  I.patches, .grids [n, 3]     of the pictures, or the video, of one row of the recorded case
  I.merged, .deepstack.K       what transformers gives there, and .hidden, the rows before the merger
  I.places, .taps, .weights, .order, .bounds     whole-number work of transformers
  seed.merged, seed.deepstack.K, grad.NAME       gradients of the sum of all results times these seeds, for all parts one
                               after the other

Gradients are those of the tower below, which is written in float64 and must give transformers' results.
"""
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy
from safetensors.numpy import load_file, save_file

jax.config.update("jax_enable_x64", True)
GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "towers"
ROWS = [(0, "image"), (1, "video"), (3, "image"), (3, "video")]
SIGLIP = "vision_tower.vision_model."
PROJECTOR = "multi_modal_projector."
MERGE = 2


def places_of(grids):
    """The row and the column of each patch, and the patches of each frame."""
    places, frames = [], []
    for t, h, w in grids:
        row, column = numpy.mgrid[0:h, 0:w]
        frame = [axis.reshape(h // MERGE, MERGE, w // MERGE, MERGE).transpose(0, 2, 1, 3).reshape(-1)
                 for axis in (row, column)]
        places += [numpy.stack(frame, 1)] * t
        frames += [h * w] * t
    return numpy.concatenate(places), frames


def window_of_each_patch(grids, side):
    """A number that patches of a window share."""
    windows, first = [], 0
    for t, h, w in grids:
        places, _ = places_of([(1, h, w)])
        of_frame = places // (MERGE * side) @ [1000, 1]
        for _ in range(t):
            windows.append(of_frame + first)
            first += 1_000_000
    return numpy.concatenate(windows)


def layer_norm(w, name, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * w[name + ".weight"] + w[name + ".bias"]


def rms_norm(w, name, x):
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[name + ".weight"]


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def gelu(x, form):
    if form == "quick_gelu":
        return x * jax.nn.sigmoid(1.702 * x)
    return jax.nn.gelu(x, approximate=form == "tanh")


def rotated(x, angles):
    """x [patches, heads, head_dim]."""
    turned = jnp.concatenate([-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]], -1)
    both = jnp.concatenate([angles, angles], -1)[:, None]
    return x * jnp.cos(both) + turned * jnp.sin(both)


def attention(w, name, x, heads, angles, seen):
    q, k, v = jnp.split(linear(w, name + ".qkv", x).reshape(len(x), 3 * heads, -1), 3, axis=1)
    scores = jnp.einsum("qhd,khd->hqk", rotated(q, angles), rotated(k, angles)) * q.shape[-1]**-0.5
    scores = jnp.where(seen, scores, -jnp.inf)
    return linear(w, name + ".proj", jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v).reshape(len(x), -1))


def resampled(table, grids):
    side, (places, _), rows = int(len(table)**0.5), places_of(grids), 0
    sizes = numpy.concatenate([[(h, w)] * (t * h * w) for t, h, w in grids])
    source = places * (side - 1) / numpy.maximum(sizes - 1, 1)
    low = numpy.floor(source).astype(int)
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at = numpy.minimum(low + corner, side - 1)
        part = numpy.where(corner, source - low, 1 - (source - low)).prod(-1)
        rows = rows + part[:, None] * table[at[:, 0] * side + at[:, 1]]
    return rows


def tower(w, vision, kind, patches, grids):
    """The merged rows, and those of deepstack."""
    places, frames = places_of(grids)
    frame = numpy.repeat(numpy.arange(len(frames)), frames)
    whole = frame[:, None] == frame
    windows = whole
    if kind == "qwen2_5_vl":
        number = window_of_each_patch(grids, vision["window_size"] // MERGE // vision["patch_size"])
        windows = number[:, None] == number
    matrix = w["patch_embed.proj.weight"]
    x = patches @ matrix.reshape(len(matrix), -1).T
    if "patch_embed.proj.bias" in w:
        x = x + w["patch_embed.proj.bias"]
    if "pos_embed.weight" in w:
        x = x + resampled(w["pos_embed.weight"], grids)
    head = x.shape[1] // vision["num_heads"]
    inverse = 10_000.0**(-numpy.arange(0, head // 2, 2) / (head // 2))
    angles = numpy.concatenate([places[:, :1] * inverse, places[:, 1:] * inverse], 1)
    norm = rms_norm if kind == "qwen2_5_vl" else layer_norm

    def merge(name, rows):
        return linear(w, name[1], gelu(linear(w, name[0], rows), "erf"))

    deep, listed = [], vision.get("deepstack_visual_indexes", [])
    for i in range(vision["depth"]):
        block = f"blocks.{i}."
        seen = whole if i in vision.get("fullatt_block_indexes", []) else windows
        x = x + attention(w, block + "attn", norm(w, block + "norm1", x), vision["num_heads"], angles, seen)
        y = norm(w, block + "norm2", x)
        if kind == "qwen2_5_vl":
            inner = jax.nn.silu(linear(w, block + "mlp.gate_proj", y)) * linear(w, block + "mlp.up_proj", y)
            x = x + linear(w, block + "mlp.down_proj", inner)
        elif kind == "qwen2_vl":
            x = x + linear(w, block + "mlp.fc2", gelu(linear(w, block + "mlp.fc1", y), "quick_gelu"))
        else:
            x = x + linear(w, block + "mlp.linear_fc2", gelu(linear(w, block + "mlp.linear_fc1", y), "tanh"))
        if i in listed:
            own = f"deepstack_merger_list.{listed.index(i)}."
            joined = layer_norm(w, own + "norm", x.reshape(len(x) // MERGE**2, -1))
            deep.append(merge((own + "linear_fc1", own + "linear_fc2"), joined))
    old = kind.startswith("qwen2")
    joined = norm(w, "merger.ln_q" if old else "merger.norm", x).reshape(len(x) // MERGE**2, -1)
    return [merge(("merger.mlp.0", "merger.mlp.2") if old else ("merger.linear_fc1", "merger.linear_fc2"), joined)] + deep


def siglip(w, vision, tokens, patches):
    """Of patches [pictures, patches, values]."""
    side, pool = vision["image_size"] // vision["patch_size"], int(len(patches[0])**0.5 / tokens**0.5)
    matrix = w[SIGLIP + "embeddings.patch_embedding.weight"]
    x = patches @ matrix.reshape(len(matrix), -1).T + w[SIGLIP + "embeddings.patch_embedding.bias"]
    x = x + w[SIGLIP + "embeddings.position_embedding.weight"]
    for i in range(vision["num_hidden_layers"]):
        layer = f"{SIGLIP}encoder.layers.{i}."
        y = layer_norm(w, layer + "layer_norm1", x)
        q, k, v = [linear(w, f"{layer}self_attn.{part}_proj", y).reshape(*y.shape[:2], vision["num_attention_heads"], -1)
                   for part in "qkv"]
        scores = jax.nn.softmax(jnp.einsum("pqhd,pkhd->phqk", q, k) * q.shape[-1]**-0.5)
        x = x + linear(w, layer + "self_attn.out_proj", jnp.einsum("phqk,pkhd->pqhd", scores, v).reshape(y.shape))
        inner = gelu(linear(w, layer + "mlp.fc1", layer_norm(w, layer + "layer_norm2", x)), "tanh")
        x = x + linear(w, layer + "mlp.fc2", inner)
    x = layer_norm(w, SIGLIP + "post_layernorm", x)
    x = x.reshape(len(x), side // pool, pool, side // pool, pool, -1).mean((2, 4)).reshape(-1, x.shape[-1])
    x = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + vision["layer_norm_eps"]) * (1 + w[PROJECTOR + "mm_soft_emb_norm.weight"])
    return [x @ w[PROJECTOR + "mm_input_projection_weight"]]


def take_siglip(recorded, name):
    folder, out = recorded / name, GOLDENS / name
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text((folder / "config.json").read_text())
    weights = {key: value for key, value in load_file(folder / "model.safetensors").items()
               if key.startswith((SIGLIP, PROJECTOR))}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    rows, tensors, parts = load_file(folder / "golden.safetensors"), {}, []
    vision = config["vision_config"]
    size = vision["patch_size"]
    for row in (0, 1, 3):
        if f"row.{row}.pixel_values" not in rows:
            continue
        pixels, i = rows[f"row.{row}.pixel_values"], len(parts)
        side = pixels.shape[-1] // size
        patches = pixels.reshape(len(pixels), 3, side, size, side, size).transpose(0, 2, 4, 1, 3, 5)
        parts.append(patches.reshape(len(pixels), side * side, -1))
        tensors |= {f"{i}.patches": parts[-1].reshape(-1, parts[-1].shape[-1]),
                    f"{i}.grids": numpy.array([[1, side, side]] * len(pixels), numpy.int32),
                    f"{i}.merged": rows[f"row.{row}.image_merged"].reshape(-1, config["text_config"]["hidden_size"])}
    own = {key: jnp.asarray(value, jnp.float64) for key, value in weights.items()}
    patches = numpy.concatenate(parts).astype(numpy.float64)
    results, backward = jax.vjp(lambda w: siglip(w, vision, config["mm_tokens_per_image"], patches), own)
    record(name, tensors, results, lambda seeds: backward(seeds)[0], len(parts), out)


def record(name, tensors, results, gradients, parts, out):
    names = ["merged"] + [f"deepstack.{i}" for i in range(len(results) - 1)]
    seeds, random = [], numpy.random.default_rng(3)
    for result, what in zip(results, names):
        expected = numpy.concatenate([tensors[f"{i}.{what}"] for i in range(parts)])
        error = numpy.linalg.norm(result - expected) / numpy.linalg.norm(expected)
        print(name, what, f"{error:.1e} from transformers'")
        assert error < 2e-6
        seed = random.standard_normal(result.shape).astype(numpy.float32)
        tensors[f"seed.{what}"] = seed
        seeds.append(jnp.asarray(seed, jnp.float64))
    for key, gradient in gradients(seeds).items():
        tensors[f"grad.{key}"] = numpy.asarray(gradient, numpy.float32)
    save_file({key: numpy.ascontiguousarray(tensors[key]) for key in sorted(tensors)}, out / "golden.safetensors")


def take(recorded, name):
    folder, out = recorded / name, GOLDENS / name
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text((folder / "config.json").read_text())
    weights = {key: value for key, value in load_file(folder / "model.safetensors").items() if "visual." in key}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    rows, tensors, parts = load_file(folder / "golden.safetensors"), {}, []
    for i, (row, kind) in enumerate(ROWS):
        def of(what):
            return rows.get(f"row.{row}.{what}")
        patches, grids = of("pixel_values" + ("_videos" if kind == "video" else "")), of(f"{kind}_grid_thw")
        parts.append((patches, grids))
        tensors |= {f"{i}.patches": patches, f"{i}.grids": grids.astype(numpy.int32)}
        for key, what in {"merged": "merged", "hidden": "tower.hidden", "deepstack.0": "deepstack.0",
                          "deepstack.1": "deepstack.1", "places": "rotary_rows_columns", "taps": "taps",
                          "weights": "tap_weights", "order": "window_index", "bounds": "window_bounds"}.items():
            if (value := of(f"{kind}_{what}")) is not None:
                tensors[f"{i}.{key}"] = value.astype(numpy.int32) if value.dtype == numpy.int64 else value
    own = {key.split("visual.")[1]: jnp.asarray(value, jnp.float64) for key, value in weights.items()}
    patches = numpy.concatenate([patches for patches, _ in parts]).astype(numpy.float64)
    grids = [tuple(int(n) for n in grid) for _, some in parts for grid in some]
    vision = config["vision_config"]
    results, backward = jax.vjp(lambda w: tower(w, vision, config["model_type"], patches, grids), own)
    record(name, tensors, results, lambda seeds: backward(seeds)[0], len(ROWS), out)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for case in sys.argv[2:]:
        (take_siglip if case == "gemma3" else take)(pathlib.Path(sys.argv[1]), case)
