#!/usr/bin/env python3
"""Writes tests/data/images: small JPEG, PNG and IDX files and, as npy, what Pillow makes of them.

    python3 -m venv venv && venv/bin/pip install pillow numpy && venv/bin/python tests/data/make_images.py

Nothing of dagrun is used: decoding, EXIF, resizing and nearest pixels are Pillow's, the interlaced
PNG and 16-bit resizing are worked out here.
"""

import gzip
import os
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
os.makedirs(OUT, exist_ok=True)
rng = np.random.default_rng(5)


def path(name):
    return os.path.join(OUT, name)


def expect(name, array, dtype=np.uint8):
    np.save(path(name + ".npy"), np.ascontiguousarray(array, dtype))


def smooth(height, width):
    """A picture that JPEG keeps well: gradients and a disc."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    disc = ((y - height / 2) ** 2 + (x - width / 3) ** 2 < (height / 4) ** 2) * 80
    picture = np.stack([255 * x / width, 255 * y / height, 90 + disc], -1)
    return np.clip(picture, 0, 255).astype(np.uint8)


def jpegs():
    picture = Image.fromarray(smooth(17, 23))
    picture.save(path("rgb.jpg"), quality=90)  # 4:2:0
    picture.save(path("rgb444.jpg"), quality=90, subsampling=0)
    picture.save(path("progressive.jpg"), quality=90, progressive=True)
    picture.convert("L").save(path("grey.jpg"), quality=90)
    picture.convert("CMYK").save(path("cmyk.jpg"), quality=90)
    for name in ("rgb", "rgb444", "progressive", "grey", "cmyk"):
        expect(name, np.array(Image.open(path(name + ".jpg")).convert("RGB")))
    expect("grey_one", np.array(Image.open(path("grey.jpg"))))
    # Orientation: 16 x 24 pixels, so that every 4:4:4 block of 8 is one colour; EXIF in both byte orders.
    flat = np.kron(rng.integers(40, 216, (2, 3, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    for k in range(1, 9):
        order, mark = ("<", b"II*\0") if k % 2 else (">", b"MM\0*")
        exif = b"Exif\0\0" + mark + struct.pack(order + "IHHHII", 8, 1, 0x0112, 3, 1, 0)
        exif = exif[:-4] + struct.pack(order + "HHI", k, 0, 0)
        name = f"turned{k}"
        Image.fromarray(flat).save(path(name + ".jpg"), quality=100, subsampling=0, exif=exif)
        expect(name, np.array(ImageOps.exif_transpose(Image.open(path(name + ".jpg")))))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(name, header, rows, more=b""):
    """A PNG by hand: header (width, height, bits, colour type, interlaced), filtered rows as bytes."""
    w, h, bits, colour, interlaced = header
    ihdr = chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, bits, colour, 0, 0, interlaced))
    data = b"\x89PNG\r\n\x1a\n" + ihdr + more + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    open(path(name + ".png"), "wb").write(data)


def plain_rows(array):
    return b"".join(b"\0" + row.tobytes() for row in array)


def pngs():
    rgb = rng.integers(0, 256, (5, 7, 3), np.uint8)
    Image.fromarray(rgb).save(path("rgb.png"))
    expect("rgb_png", rgb)
    alpha = rng.integers(0, 256, (5, 7, 1), np.uint8)
    rgba = np.concatenate([rgb, alpha], -1)
    Image.fromarray(rgba).save(path("rgba.png"))
    expect("rgba", rgba)
    grey = rng.integers(0, 256, (5, 7), np.uint8)
    Image.fromarray(grey).save(path("grey.png"))
    expect("grey_png", grey)
    Image.fromarray(np.stack([grey, alpha[..., 0]], -1)).save(path("grey_alpha.png"))
    palette = Image.fromarray(rng.integers(0, 4, (5, 7), np.uint8), "P")
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 250, 251, 252])
    palette.save(path("palette.png"), bits=2)
    expect("palette_rgb", np.array(palette.convert("RGB")))
    expect("palette_numbers", np.array(palette))
    palette.save(path("palette_clear.png"), bits=2, transparency=bytes([255, 0, 128, 9]))
    expect("palette_clear", np.array(Image.open(path("palette_clear.png")).convert("RGBA")))
    for bits in (1, 2, 4):  # grey of few bits: 7 pixels a row, packed by hand
        values = rng.integers(0, 1 << bits, (5, 7), np.uint8)
        packed = [np.packbits(np.unpackbits(row[:, None], axis=1)[:, 8 - bits :].ravel()) for row in values]
        png(f"grey{bits}", (7, 5, bits, 0, 0), b"".join(b"\0" + p.tobytes() for p in packed))
        expect(f"grey{bits}_numbers", values)
        expect(f"grey{bits}", values.astype(int) * 255 // ((1 << bits) - 1))
    grey16 = rng.integers(0, 65536, (5, 7), np.uint16)
    png("grey16", (7, 5, 16, 0, 0), plain_rows(grey16.astype(">u2")))
    expect("grey16", grey16, np.uint16)
    rgb16 = rng.integers(0, 65536, (5, 7, 3), np.uint16)
    png("rgb16", (7, 5, 16, 2, 0), plain_rows(rgb16.astype(">u2")))
    expect("rgb16", rgb16, np.uint16)
    # Adam7
    rows = b""
    for y0, x0, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
        part = rgb[y0::dy, x0::dx]
        rows += plain_rows(part) if part.size else b""
    png("interlaced", (7, 5, 8, 2, 1), rows)
    assert (np.array(Image.open(path("interlaced.png"))) == rgb).all()
    png("one", (1, 1, 8, 0, 0), b"\0\x64")  # one pixel of 100
    # A wrong sRGB profile and a long text, which viewers shrug at
    png("profile", (7, 5, 8, 2, 0), plain_rows(rgb), chunk(b"iCCP", b"x\0\0" + zlib.compress(b"no profile")) +
        chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 20))))
    # raw [[1, 2, 3], [4, 5, 6]] in every orientation, EXIF before and behind the pixels
    for k in range(1, 9):
        exif = chunk(b"eXIf", b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, k, 0, 0))
        png(f"six{k}", (3, 2, 8, 0, 0), b"\0\1\2\3\0\4\5\6", exif)


def weights(n_in, n_out):
    """The triangle filter of Pillow's documentation, in double: rows of weights that add up to 1."""
    scale = n_in / n_out
    reach = max(scale, 1.0)
    centre = (np.arange(n_out)[:, None] + 0.5) * scale
    w = np.maximum(0, 1 - np.abs(np.arange(n_in)[None] + 0.5 - centre) / reach)
    return w / w.sum(1, keepdims=True)


def fits():
    noise = rng.integers(0, 256, (9, 13, 3), np.uint8)
    im = Image.fromarray(noise)
    im.save(path("noise.png"))
    mask = rng.integers(0, 200, (9, 13), np.uint8)
    Image.fromarray(mask).save(path("mask.png"))
    deep = rng.integers(0, 65536, (9, 13), np.uint16)
    png("deep", (13, 9, 16, 0, 0), plain_rows(deep.astype(">u2")))
    for h, w in ((5, 7), (20, 31), (3, 40), (9, 6), (1, 1)):
        expect(f"resize_{h}x{w}", np.array(im.resize((w, h), Image.BILINEAR)))
        expect(f"mask_{h}x{w}", np.array(Image.fromarray(mask).resize((w, h), Image.NEAREST)))
        two = np.rint(weights(9, h) @ deep.astype(float) @ weights(13, w).T)
        expect(f"deep_{h}x{w}", two, np.uint16)
    # crop: torchvision's Resize(shorter side), CenterCrop. The full sizes are by hand.
    #   6 x 6: 9 x 13 -> 6 x 8 (13 * 6 / 9 = 8.67), columns 1 to 6.  12 x 5: -> 12 x 17, columns 6 to 10.
    #   4 x 10: -> 6 x 10 (9 * 10 / 13 = 6.92), rows 1 to 4
    for h, w, full_h, full_w, y, x in ((6, 6, 6, 8, 0, 1), (12, 5, 12, 17, 0, 6), (4, 10, 6, 10, 1, 0)):
        box = (x, y, x + w, y + h)
        expect(f"crop_{h}x{w}", np.array(im.resize((full_w, full_h), Image.BILINEAR).crop(box)))
        near = Image.fromarray(mask).resize((full_w, full_h), Image.NEAREST).crop(box)
        expect(f"crop_mask_{h}x{w}", np.array(near))
    # pad: 6 x 6: -> 4 x 6 (9 * 6 / 13 = 4.15), one row above and below. 5 x 20: -> 5 x 7 (7.22), six
    # columns to the left, seven to the right. 12 x 14: not scaled, one row above, two below, no column left.
    for h, w, full_h, full_w, y, x in ((6, 6, 4, 6, 1, 0), (5, 20, 5, 7, 0, 6), (12, 14, 9, 13, 1, 0)):
        a = np.zeros((h, w, 3), np.uint8)
        a[y : y + full_h, x : x + full_w] = np.array(im.resize((full_w, full_h), Image.BILINEAR))
        expect(f"pad_{h}x{w}", a)
        m = np.full((h, w), 255, np.uint8)
        m[y : y + full_h, x : x + full_w] = np.array(Image.fromarray(mask).resize((full_w, full_h), Image.NEAREST))
        expect(f"pad_mask_{h}x{w}", m)


def idx():
    images = rng.integers(0, 256, (6, 4, 3), np.uint8)
    head = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
    open(path("images-idx3-ubyte"), "wb").write(head + images.tobytes())
    expect("idx_images", images)
    labels = np.array([3, 1, 4, 1, 5, 9], np.uint8)
    head = struct.pack(">BBBBI", 0, 0, 8, 1, 6)
    with open(path("labels-idx1-ubyte.gz"), "wb") as f:  # no file of the plain name
        f.write(gzip.compress(head + labels.tobytes(), mtime=0))
    floats = np.array([[1.5, -2.25, 3e38], [0, 1e-40, -1]], np.float32)
    with open(path("floats-idx2.gz"), "wb") as f:
        f.write(gzip.compress(struct.pack(">BBBBII", 0, 0, 13, 2, 2, 3) + floats.astype(">f4").tobytes(), mtime=0))


jpegs()
pngs()
fits()
idx()
