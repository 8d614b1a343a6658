#!/usr/bin/env python3
"""Writes the references of tests/test_augment_torch.c with torchvision, on PyTorch's CPU:

    python3 tests/data/make_augment.py tests/data/augment.safetensors

byte.x, float.x     an image [11, 17, 3]: uint8, and float32 in [0, 1]
byte.NAME, ...      what torchvision.transforms.v2.functional makes of it

Bytes are resized as floats and then rounded, as torchvision does on a GPU: its CPU rounds between the two axes too.
"""
import json
import struct
import sys

import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

TYPES = {torch.float32: ("F32", "f"), torch.uint8: ("U8", "B")}
NEAREST, BILINEAR = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR


def raw(t):
    flat = t.contiguous().reshape(-1).tolist()
    return struct.pack("<%d%s" % (len(flat), TYPES[t.dtype][1]), *flat)


def write(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        bytes_ = raw(t)
        header[name] = {
            "dtype": TYPES[t.dtype][0],
            "shape": list(t.shape),
            "data_offsets": [len(data), len(data) + len(bytes_)],
        }
        data += bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def resized(x, top, left, h, w, size):
    y = F.resized_crop(x.float(), top, left, h, w, size, interpolation=BILINEAR, antialias=True)
    return y.round().to(torch.uint8) if x.dtype == torch.uint8 else y


def turned(x, turn, fill):
    """Bilinear with a border of `fill`: torchvision weighs pixels at the edge with their share twice."""
    border = 64
    y = turn(F.pad(x, [border] * 4, fill=fill))
    return y[:, border:-border, border:-border]


def references(x):
    h, w = x.shape[-2:]
    yield "x", x
    for size in ([5, 9], [11, 17], [20, 33], [3, 40], [1, 1]):
        yield "resize_%dx%d" % tuple(size), resized(x, 0, 0, h, w, size)
    for top, left, ph, pw, size in ((2, 3, 7, 9, [4, 4]), (0, 5, 11, 1, [6, 7]), (10, 16, 1, 1, [3, 2])):
        yield "part_%d_%d_%d_%d_%dx%d" % (top, left, ph, pw, *size), resized(x, top, left, ph, pw, size)
    fill = 7.0 if x.dtype == torch.uint8 else 0.25
    for name, how in (("nearest", NEAREST), ("bilinear", BILINEAR)):
        for angle in (33.0, -121.0, 180.0):
            yield "rotate_%s_%d" % (name, angle), turned(x, lambda y: F.rotate(y, angle, how, fill=fill), fill)
        for i, (angle, shift, scale, shear) in enumerate((
            (10.0, [3, -2], 1.3, [0.0, 0.0]),
            (-75.0, [0, 1], 0.6, [12.0, 0.0]),
            (200.0, [-4, 0], 1.0, [-20.0, 9.0]),
        )):
            turn = lambda y: F.affine(y, angle, shift, scale, shear, how, fill=fill)
            yield "affine_%s_%d" % (name, i), turned(x, turn, fill)
    for factor in (0.0, 0.55, 1.45, 3.0):
        yield "brightness_%.2f" % factor, F.adjust_brightness(x, factor)
        yield "contrast_%.2f" % factor, F.adjust_contrast(x, factor)
        yield "saturation_%.2f" % factor, F.adjust_saturation(x, factor)
    for shift in (-0.5, -0.13, 0.0, 0.3):
        yield "hue_%.2f" % shift, F.adjust_hue(x, shift)
    yield "grey", F.rgb_to_grayscale(x, 3)
    for kh, kw, sigma in ((3, 3, 0.8), (5, 9, 2.0), (21, 1, 0.1), (1, 33, 5.0)):
        yield "blur_%dx%d_%.1f" % (kh, kw, sigma), F.gaussian_blur(x, [kw, kh], [sigma, sigma])


def main():
    torch.manual_seed(5)
    # Smooth colours under noise, so that neighbours differ little and edges a lot.
    ramp = torch.linspace(0, 255, 17).repeat(3, 11, 1) * torch.tensor([1.0, 0.4, 0.8])[:, None, None]
    byte = (ramp + 60 * torch.randn(3, 11, 17)).clamp(0, 255).to(torch.uint8)
    byte[:, 3, 4:8] = torch.tensor([[0, 255, 128, 128]] * 3, dtype=torch.uint8)  # greys have no hue
    tensors = {}
    for kind, x in (("byte", byte), ("float", byte.float() / 255)):
        for name, y in references(x):
            tensors["%s.%s" % (kind, name)] = y.permute(1, 2, 0)
    write(sys.argv[1], tensors)


main()
