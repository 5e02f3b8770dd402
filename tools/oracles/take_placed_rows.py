#!/usr/bin/env python3
"""Takes rows with pictures and videos out of recorded cases, as the text's decoder gets them, for tests/goldens/placed_rows.

Usage: take_placed_rows.py RECORDED CASE...     needs numpy and safetensors; `make test` needs neither

RECORDED/CASE is a published-like folder of a tiny random model with what transformers made of it (take_text_goldens.py, which
brings its config.json and model.safetensors to tests/goldens/pictures). CASE.safetensors has, of each row I:
  row.I.input_ids, .labels, .mm_token_type_ids     [tokens]; 0 text, 1 picture, 2 video
  row.I.image_grid_thw, .video_grid_thw            [n, 3] in patches; row.I.second_per_grid_ts [videos]
  row.I.position_ids, .logits                      [3, tokens] and [places, vocabulary] of transformers 5.17; with .RULE (v4_57,
                                                   v5_24, qwen) where another rule for videos gives others
  row.I.logits_at                                  the places; all where there are none
  row.I.placed, .after.K                           [pictures' and videos' tokens, hidden]: what the tower gives for them in the
                                                   row's order, and what is added behind layer K
  loss, grad.NAME                                  of the mean over all labels of all rows, of the text's parameters
"""
import pathlib
import sys

import numpy
from safetensors.numpy import load_file, save_file

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "placed_rows"
KEPT = ("input_ids", "labels", "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "second_per_grid_ts", "position_ids",
        "logits_at", "logits")


def in_order(kinds, of_pictures, of_videos):
    """Rows of pictures and of videos in the order of their tokens."""
    given = {1: list(of_pictures), 2: list(of_videos)}
    return numpy.stack([given[kind].pop(0) for kind in kinds if kind > 0])


def take(recorded, name):
    golden = load_file(recorded / name / "golden.safetensors")
    out = {"loss": golden["loss"]}
    out |= {key: value for key, value in golden.items() if key.startswith("grad.") and "visual." not in key}
    for row in range(4):
        begin = f"row.{row}."
        out |= {key: value for key, value in golden.items()
                if key.startswith(begin) and any(key.removeprefix(begin).split(".")[0] == kept for kept in KEPT)}
        kinds = golden[begin + "mm_token_type_ids"]
        if not kinds.any():
            continue
        nothing = numpy.zeros((0, 1), numpy.float32)
        for what, to in [("merged", "placed")] + [(f"deepstack.{k}", f"after.{k}") for k in range(9)]:
            pictures, videos = (golden.get(f"{begin}{kind}_{what}", nothing) for kind in ("image", "video"))
            if len(pictures) + len(videos) > 0:
                out[begin + to] = in_order(kinds, pictures, videos)
    save_file({key: numpy.ascontiguousarray(out[key]) for key in sorted(out)}, GOLDENS / f"{name}.safetensors")


for case in sys.argv[2:]:
    take(pathlib.Path(sys.argv[1]), case)
