#!/usr/bin/env python3
"""Writes the reference files of tests/test_safetensors.c with the safetensors package (pip install numpy safetensors).

reference.safetensors   one tensor of each type that is read, and some that are not; awkward names; metadata
torch.safetensors       what PyTorch's state_dict of Sequential(Conv2d(3, 4, (2, 5), bias=True), BatchNorm2d(4)) and
                        ConvTranspose2d(4, 2, (3, 1)) and Linear(6, 2) holds, under the names that DoubleConv-like modules
                        give; every element says where it stands: conv[o, i, h, w] = 1000 o + 100 i + 10 h + w
"""
import os
import numpy as np
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))


def places(*shape):
    weight = [10 ** (len(shape) - 1 - i) for i in range(len(shape))]
    return sum(w * i for w, i in zip(weight, np.indices(shape))).astype(np.float32)


half = np.array([0.0, -0.0, 1.0, -2.5, 65504.0, 6.103515625e-05, 5.9604644775390625e-08, np.inf], np.float16)
save_file(
    {
        "f32": np.array([[1.5, -0.25, 3e38], [0.0, 1e-40, -7.0]], np.float32),
        "f16": half,
        "f64": np.array([1.0, 0.1, -1e300 / 1e299], np.float64),
        "i64": np.array(12345678901234, np.int64),
        "u8": np.array([7], np.uint8),
        "bool": np.array([True, False, True]),
        "empty": np.zeros((0, 4), np.float32),
        'a"b\\c/é 卷积 \U0001f600': np.array([42.0], np.float32),
    },
    os.path.join(here, "reference.safetensors"),
    metadata={"format": "pt", "quote": 'a "quoted"\nline'},
)
save_file(
    {
        "module.inc.double_conv.0.weight": places(4, 3, 2, 5),
        "module.inc.double_conv.0.bias": places(4),
        "module.inc.double_conv.1.weight": places(4) + 10,
        "module.inc.double_conv.1.bias": places(4) + 20,
        "module.inc.double_conv.1.running_mean": places(4) + 30,
        "module.inc.double_conv.1.running_var": places(4) + 40,
        "module.inc.double_conv.1.num_batches_tracked": np.array(17, np.int64),
        "module.up.weight": places(4, 2, 3, 1),
        "module.up.bias": places(2),
        "module.fc.weight": places(2, 6).astype(np.float64),
        "module.fc.bias": places(2).astype(np.float16),
    },
    os.path.join(here, "torch.safetensors"),
    metadata={"format": "pt"},
)
