#!/usr/bin/env python3
"""Writes tests/goldens/decoded_pictures: small files of every kind that the rooms of src/media decode, and what Pillow
makes of them (needs Pillow 12.3 and numpy).

  python3 tools/oracles/make_picture_cases.py tests/goldens/decoded_pictures

cases.json has for each file its size and the CRC-32 of its bytes, red, green and blue, after exif_transpose and
convert("RGB"), which is how transformers' load_image reads a picture."""
import io
import json
import pathlib
import struct
import sys
import zlib

import numpy
import PIL
from PIL import Image, ImageOps, features

WIDTH, HEIGHT = 45, 31
ORIENTATION = 0x0112
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def colors(channels):
    """Waves with some noise: [height, width, channels]."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    noise = numpy.random.default_rng(7).normal(0, 12, (HEIGHT, WIDTH, channels))
    waves = [127 + 110 * numpy.sin(x / (3 + c) + c) * numpy.cos(y / (5 - c)) for c in range(channels)]
    return numpy.clip(numpy.stack(waves, -1) + noise, 0, 255).astype(numpy.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(rows, color_type, depth, interlaced=False, more=()):
    """`rows`: packed bytes of each row, or of each row of each pass."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color_type, 0, 0, int(interlaced))
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*each) for each in more)
            + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def wide_rows(channels):
    """16 bits, the upper byte first, the lower one noise."""
    wide = colors(channels).astype(">u2") * 256 + numpy.random.default_rng(8).integers(0, 256, (HEIGHT, WIDTH, channels))
    return [row.astype(">u2").tobytes() for row in wide]


def packed_rows(depth):
    values = colors(1)[..., 0] >> (8 - depth)
    bits = (values[..., None] >> numpy.arange(depth - 1, -1, -1)) & 1
    return [numpy.packbits(row.reshape(-1).astype(numpy.uint8)).tobytes() for row in bits]


def saved(picture, kind, **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def exif(orientation, big=False):
    order = ">" if big else "<"
    block = (b"MM" if big else b"II") + struct.pack(order + "HIH", 42, 8, 2)
    block += struct.pack(order + "HHI", 0x0100, 4, 1) + struct.pack(order + "I", 77)
    block += struct.pack(order + "HHI", ORIENTATION, 3, 1) + struct.pack(order + "HH", orientation, 0)
    return b"Exif\0\0" + block + struct.pack(order + "I", 0)


def xmp(orientation):
    return (b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="'
            + str(orientation).encode() + b'"/></x:xmpmeta>')


def jpeg_files(rgb):
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        yield f"rgb_{name}.jpg", saved(rgb, "JPEG", quality=90, subsampling=sampling)
    yield "progressive.jpg", saved(rgb, "JPEG", quality=60, progressive=True)
    yield "restarts.jpg", saved(rgb, "JPEG", quality=75, restart_marker_blocks=2)
    yield "kept_rgb.jpg", saved(rgb, "JPEG", quality=90, keep_rgb=True)
    yield "grey.jpg", saved(rgb.convert("L"), "JPEG", quality=90)
    yield "cmyk.jpg", saved(Image.fromarray(colors(4), "CMYK"), "JPEG", quality=90)
    for orientation in range(1, 10):
        yield f"turned_{orientation}.jpg", saved(rgb, "JPEG", quality=50, exif=exif(orientation, orientation % 2 == 0))
    yield "turned_by_xmp.jpg", saved(rgb, "JPEG", quality=50, xmp=xmp(6))
    yield "turned_by_exif_not_xmp.jpg", saved(rgb, "JPEG", quality=50, exif=exif(3), xmp=xmp(6))


def png_files(rgb):
    palette = rgb.quantize(19)
    yield "one_bit.png", saved(rgb.convert("1"), "PNG")
    yield "grey.png", saved(rgb.convert("L"), "PNG")
    yield "grey_two_bits.png", png(packed_rows(2), 0, 2)
    yield "grey_four_bits.png", png(packed_rows(4), 0, 4)
    yield "grey_alpha.png", saved(Image.fromarray(colors(2), "LA"), "PNG")
    yield "grey_one_transparent.png", png(packed_rows(8), 0, 8, more=[(b"tRNS", b"\0\x80")])
    yield "palette.png", saved(palette, "PNG")
    yield "palette_transparent.png", saved(palette, "PNG", transparency=bytes(range(0, 190, 10)))
    yield "palette_two_bits.png", saved(rgb.quantize(4), "PNG", bits=2)
    yield "rgb.png", saved(rgb, "PNG")
    yield "rgb_one_transparent.png", saved(rgb, "PNG", transparency=(100, 100, 100))
    yield "rgba.png", saved(Image.fromarray(colors(4), "RGBA"), "PNG")
    yield "grey_wide.png", png(wide_rows(1), 0, 16)
    yield "grey_wide_dark.png", png([numpy.arange(row, row + WIDTH * 9, 9).astype(">u2").tobytes() for row in range(HEIGHT)], 0, 16)
    yield "rgb_wide.png", png(wide_rows(3), 2, 16)
    yield "grey_alpha_wide.png", png(wide_rows(2), 4, 16)
    yield "rgba_wide.png", png(wide_rows(4), 6, 16)
    pixels = numpy.asarray(rgb)
    rows = [row.tobytes() for x, y, dx, dy in ADAM7 for row in pixels[y::dy, x::dx]]
    yield "interlaced.png", png(rows, 2, 8, interlaced=True)
    yield "turned_by_exif.png", saved(rgb, "PNG", exif=exif(8))
    behind = saved(rgb, "PNG")
    yield "turned_by_exif_behind.png", behind[:-12] + chunk(b"eXIf", exif(5)[6:]) + behind[-12:]


def webp_files(rgb):
    rgba = Image.fromarray(colors(4), "RGBA")
    yield "lossy.webp", saved(rgb, "WEBP", quality=80)
    yield "lossless.webp", saved(rgb, "WEBP", lossless=True)
    yield "lossy_alpha.webp", saved(rgba, "WEBP", quality=80)
    yield "lossless_alpha.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "animated.webp", saved(rgba, "WEBP", lossless=True, save_all=True, append_images=[rgba.rotate(180)], duration=40)
    yield "turned_by_exif.webp", saved(rgb, "WEBP", quality=50, exif=exif(7))
    yield "turned_by_xmp.webp", saved(rgb, "WEBP", quality=50, xmp=xmp(4))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rgb = Image.fromarray(colors(3), "RGB")
    cases = []
    for files in (jpeg_files, png_files, webp_files):
        for name, content in files(rgb):
            (folder / name).write_bytes(content)
            picture = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
            cases.append({"file": name, "width": picture.width, "height": picture.height,
                          "crc32": zlib.crc32(picture.tobytes())})
    versions = {"pillow": PIL.__version__, "libjpeg-turbo": features.version("libjpeg_turbo"), "libwebp": features.version("webp")}
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    (folder / "cases.json").write_text(f'{{"made_with": {json.dumps(versions)},\n "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
