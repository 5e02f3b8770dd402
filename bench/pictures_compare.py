#!/usr/bin/env python3
"""Pictures made here through temper_bench_pictures and transformers' processors with Pillow, in one run: CPU time of one
thread for each, from the file to pixel_values, the ratio, and whether grids and values are equal.

  pictures_compare.py temper_bench_pictures      needs: pip install transformers==5.17.0 pillow==12.3.0

Pictures look like photographs to a decoder: noise of all sizes. Both sides take the best of several repeats."""
import json
import os
import subprocess
import sys
import tempfile
import time

REPEATS = 5
SIZES = ((640, 480), (1024, 768), (1600, 1200), (672, 672))
MODELS = {
    "qwen2_5_vl": dict(patch_size=14, min_pixels=3136, max_pixels=12845056, image_mean=[0.48145466, 0.4578275, 0.40821073],
                       image_std=[0.26862954, 0.26130258, 0.27577711]),
    "qwen3_vl": dict(patch_size=16, min_pixels=65536, max_pixels=16777216, image_mean=[0.5] * 3, image_std=[0.5] * 3),
    "qwen2_5_vl, 512 tokens": dict(patch_size=14, min_pixels=3136, max_pixels=512 * 28 * 28, image_mean=[0.5] * 3,
                                   image_std=[0.5] * 3)}


def photograph(width, height):
    import numpy
    from PIL import Image
    random = numpy.random.default_rng(width)
    pixels = numpy.full((height, width, 3), 128.0)
    for cell in (256, 64, 16, 4, 1):
        small = random.normal(0, 6 + cell ** 0.5 * 2, (height // cell + 2, width // cell + 2, 3)).astype(numpy.float32)
        planes = [Image.fromarray(small[..., c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        pixels += numpy.stack([numpy.asarray(plane) for plane in planes], -1)
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))


def make_files(folder):
    files = []
    for width, height in SIZES:
        picture = photograph(width, height)
        for kind, options in (("jpg", dict(quality=90)), ("png", {}), ("webp", dict(quality=85))):
            if kind == "jpg" or (width, height) == (1024, 768):
                files.append(os.path.join(folder, f"{width}x{height}.{kind}"))
                picture.save(files[-1], **options)
    return files


def best_milliseconds(work):
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        result = work()
        times.append(1e3 * (time.thread_time() - start))
    return min(times), result


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import numpy
    from transformers.image_utils import load_image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(folder)
        for model, settings in MODELS.items():
            with open(os.path.join(folder, "preprocessor_config.json"), "w") as file:
                json.dump(dict(settings, image_processor_type="Qwen2VLImageProcessor"), file)
            printed = subprocess.run([sys.argv[1], folder, *files, "--values", folder], check=True, capture_output=True, text=True)
            sums = [0.0, 0.0]
            for path, line in zip(files, printed.stdout.splitlines()):
                row = json.loads(line)
                processor = Qwen2VLImageProcessorPil(**settings)
                peer, made = best_milliseconds(lambda: processor(images=[load_image(path)], return_tensors="np"))
                ours = numpy.fromfile(path + ".f32", numpy.float32).reshape(made["pixel_values"].shape)
                equal = numpy.array_equal(ours, made["pixel_values"])
                largest = numpy.abs(ours - made["pixel_values"]).max()
                wrong += not largest < (0.1 if path.endswith("jpg") or path.endswith("webp") else 2e-6)
                sums[0] += row["all_ms"]
                sums[1] += peer
                print(f"{model:24}{row['file']:16} to {row['resized'][0]:4} x {row['resized'][1]:4}  decode {row['decode_ms']:6.2f}"
                      f"  resize {row['resize_ms']:6.2f}  patches {row['patches_ms']:6.2f}  all {row['all_ms']:6.2f} ms"
                      f"  transformers {peer:7.2f} ms  ratio {peer / row['all_ms']:5.2f}"
                      f"  values {'equal' if equal else f'differ by {largest:.2g}'}", flush=True)
            print(f"{model:24}all: {sums[0]:.1f} and {sums[1]:.1f} ms, ratio {sums[1] / sums[0]:.2f}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
