#!/usr/bin/env python3
"""Writes tests/onnx/cases.txt and data.safetensors: ONNX's own operator tests as models of dagrun.

    python3 -m venv venv && venv/bin/pip install onnx==1.23.2 numpy && venv/bin/python tests/onnx/convert.py

Data comes from the onnx package alone (backend/test); nothing of dagrun is used, and nothing is
computed: arrays are put into other layouts (NCHW to NHWC, a batch of one around what has none, an
axis moved to the end), attributes are written out (auto_pad as pads, scales as sizes). What dagrun
has no op or attribute for is listed with its reason instead.

cases.txt has a block a case: "= NAME OP" and the YAML, or "- NAME OP: REASON".
"""

import collections
import json
import os
import struct
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper

warnings.filterwarnings("ignore")
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST = 200_000  # bytes of a case that are kept here


class No(Exception):
    """Why a case has no model."""


class Case:
    """What a converter fills in. Inputs and outputs have the batch first."""

    def __init__(self, attributes, inputs, outputs):
        self.a = attributes
        self.x = inputs  # None: left out
        self.want = outputs
        self.inputs, self.weights, self.nodes, self.loss = [], {}, [], None
        self.expected = None

    def floats(self, *arrays):
        for x in arrays:
            if x.dtype != np.float32:
                raise No("not of float32")

    def input(self, x):
        self.inputs.append(x)
        return f"x{len(self.inputs) - 1}"

    def node(self, name, **attributes):
        self.nodes.append((name, attributes))

    def weight(self, leaf, x, node="y"):
        self.weights[f"{node}.{leaf}"] = x

    def one_output(self):
        if len(self.want) != 1:
            raise No("a second output")


def last(x):
    """NC... to N...C."""
    return np.moveaxis(x, 1, -1)


def spatial(c, x, rank=4):
    """An image of 2 axes; of one: with a height of 1."""
    c.floats(x)
    if x.ndim > 4:
        raise No("3-D: images have two axes")
    return x[:, :, None, :] if x.ndim == 3 else x


def pair(c, name, n, default):
    v = list(c.a.get(name, [default] * n))
    return ([default] if n == 1 else []) + v


def window(c, x, kernel, transposed=False):
    """strides, pads (top, left, bottom, right), dilations of a window over x [N, C, ...]."""
    n = x.ndim - 2
    strides, dilations = pair(c, "strides", n, 1), pair(c, "dilations", n, 1)
    pads = list(c.a.get("pads", [0] * 2 * n))
    begin, end = ([0] if n == 1 else []) + pads[:n], ([0] if n == 1 else []) + pads[n:]
    auto = c.a.get("auto_pad", b"NOTSET").decode()
    if auto.startswith("SAME") and not transposed:
        size = ([1] if n == 1 else []) + list(x.shape[2:])
        for i in range(2):
            reach = dilations[i] * (kernel[i] - 1) + 1
            out = -(-size[i] // strides[i])
            total = max((out - 1) * strides[i] + reach - size[i], 0)
            few = total // 2
            begin[i], end[i] = (few, total - few) if auto == "SAME_UPPER" else (total - few, few)
    return strides, begin + end, dilations


def padding(p):
    return "{top: %d, left: %d, bottom: %d, right: %d}" % tuple(p)


def kernel_of(c, w):
    return ([1] if w.ndim == 3 else []) + list(w.shape[2:])


def conv(c):
    x, w = c.x[0], c.x[1]
    if x.ndim > 4:
        raise No("3-D: images have two axes")
    kernel = kernel_of(c, w)
    strides, pads, dilations = window(c, x, kernel)
    bias = c.x[2] if len(c.x) > 2 else None
    c.node("conv2d", filters=w.shape[0], kernel=kernel, stride=strides, padding=padding(pads),
           dilation=dilations, groups=c.a.get("group", 1), bias="yes" if bias is not None else "no",
           **{"in": c.input(last(spatial(c, x)))})
    c.weight("weight", spatial(c, w))
    if bias is not None:
        c.weight("bias", bias)
    c.expected = last(spatial(c, c.want[0]))


def conv_transpose(c):
    x, w = c.x[0], c.x[1]
    if x.ndim > 4:
        raise No("3-D: images have two axes")
    n, kernel = x.ndim - 2, kernel_of(c, w)
    strides, pads, dilations = window(c, x, kernel, transposed=True)
    extra, groups = pair(c, "output_padding", n, 0), c.a.get("group", 1)
    size = ([1] if n == 1 else []) + list(x.shape[2:])
    auto = c.a.get("auto_pad", b"NOTSET").decode()
    if "output_shape" in c.a or auto.startswith("SAME"):  # written out as pads
        shape = c.a.get("output_shape", [s * t for s, t in zip(size, strides)])
        for i in range(2):
            total = (size[i] - 1) * strides[i] + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - shape[i]
            if total < 0:
                # ONNX widens the output by a negative pad: rows that no tap reaches.
                extra[i] += -total
                total = 0
            few = total // 2
            first = few if auto == "SAME_UPPER" else total - few
            pads[i], pads[i + 2] = first, total - first
    bias = c.x[2] if len(c.x) > 2 else None
    c.node("conv_transpose2d", filters=w.shape[1] * groups, kernel=kernel, stride=strides,
           padding=padding(pads), output_padding=extra, dilation=dilations, groups=groups,
           bias="yes" if bias is not None else "no", **{"in": c.input(last(spatial(c, x)))})
    c.weight("weight", spatial(c, w))
    if bias is not None:
        c.weight("bias", bias)
    c.expected = last(spatial(c, c.want[0]))


def pool(c, op):
    c.one_output()
    x = c.x[0]
    if x.ndim > 4:
        raise No("3-D: images have two axes")
    n = x.ndim - 2
    if n == 0:
        raise No("no axis to pool over")
    kernel = ([1] if n == 1 else []) + list(c.a["kernel_shape"])
    strides, pads, dilations = window(c, x, kernel)
    if any(d != 1 for d in dilations):
        raise No("dilations of a pool")
    if any(2 * p > k for p, k in zip(pads, kernel + kernel)):
        raise No("pads above half the kernel, which dagrun refuses as PyTorch does")
    more = {}
    if op == "avg_pool2d":
        more["count_include_pad"] = "yes" if c.a.get("count_include_pad", 0) else "no"
    c.node(op, kernel=kernel, stride=strides, padding=padding(pads),
           ceil_mode="yes" if c.a.get("ceil_mode", 0) else "no", **more,
           **{"in": c.input(last(spatial(c, x)))})
    c.expected = last(spatial(c, c.want[0]))


def global_avg_pool(c):
    c.floats(c.x[0])
    c.node("global_avg_pool", **{"in": c.input(last(c.x[0]))})
    c.expected = c.want[0].reshape(c.want[0].shape[:2])


def batch_norm(c):
    if c.a.get("training_mode", 0):
        raise No("training_mode: its running variance is the biased one, PyTorch's and dagrun's is not")
    c.floats(*c.x)
    x = c.x[0]
    c.node("batch_norm", eps=repr(float(c.a.get("epsilon", 1e-5))), **{"in": c.input(last(x))})
    for leaf, v in zip(("weight", "bias", "running_mean", "running_var"), c.x[1:]):
        c.weight(leaf, v)
    c.expected = last(c.want[0])


def softmax(c, old):
    axis, x = c.a.get("axis", 1 if old else -1), c.x[0]
    c.floats(x)
    if old and axis % x.ndim != x.ndim - 1:  # up to opset 12: over all axes from this one on
        rows = int(np.prod(x.shape[:axis]))
        c.node("softmax", **{"in": c.input(x.reshape(rows, -1))})
        c.expected = c.want[0].reshape(rows, -1)
        return
    c.node("softmax", **{"in": c.input(np.moveaxis(x[None], axis % x.ndim + 1, -1))})
    c.expected = np.moveaxis(c.want[0][None], axis % x.ndim + 1, -1)


def gemm(c):
    c.floats(*c.x)
    if c.a.get("alpha", 1) != 1 or c.a.get("beta", 1) != 1:
        raise No("alpha or beta other than 1")
    a = c.x[0].T if c.a.get("transA", 0) else c.x[0]
    w = c.x[1] if c.a.get("transB", 0) else c.x[1].T
    bias = c.x[2] if len(c.x) > 2 and c.x[2] is not None else None
    matrix = bias is not None and bias.ndim == 2 and bias.shape[0] > 1
    vector = bias is not None and not matrix
    name = "m" if matrix else "y"
    c.node("linear", features=w.shape[0], bias="yes" if vector else "no", **{"in": c.input(a)})
    c.weight("weight", w, name)
    if vector:  # one value for all is written out
        c.weight("bias", np.broadcast_to(bias.reshape(-1), (w.shape[0],)), name)
    if matrix:
        c.node("add", **{"in": "[m, %s]" % c.input(bias)})
    c.expected = c.want[0]


def resize(c):
    x, want = c.x[0], c.want[0]
    c.floats(x)
    if x.ndim != 4:
        raise No("no image")
    mode = c.a.get("mode", b"nearest").decode()
    how = c.a.get("coordinate_transformation_mode", b"half_pixel").decode()
    round_ = c.a.get("nearest_mode", b"round_prefer_floor").decode()
    scales = c.x[2] if len(c.x) > 2 and c.x[2] is not None and c.x[2].size else None
    if mode == "cubic":
        raise No("mode cubic")
    if c.a.get("antialias", 0):
        raise No("antialias")
    if how in ("align_corners", "tf_crop_and_resize"):
        raise No(how)
    if x.shape[:2] != want.shape[:2]:
        raise No("resizes the channels")
    size = want.shape[2:]
    if scales is not None:
        axes = c.a.get("axes", [0, 1, 2, 3])
        for k, axis in enumerate(axes):
            if abs(x.shape[axis] * float(scales[k]) - want.shape[axis]) > 1e-6:
                raise No("a scale that is no ratio of the sizes")
    whole = all(o % i == 0 for i, o in zip(x.shape[2:], size))
    if mode == "nearest" and not whole and not (how == "asymmetric" and round_ == "floor"):
        raise No("nearest by another rule than floor(o * in / out), PyTorch's")
    if mode == "nearest" and whole and (how, round_) not in (
            ("half_pixel", "round_prefer_floor"), ("asymmetric", "floor")):
        raise No("nearest by another rule than floor(o * in / out), PyTorch's")
    if mode == "linear" and how == "asymmetric":
        raise No(how)
    if how == "pytorch_half_pixel" and 1 in size:
        raise No("pytorch_half_pixel to a size of 1")
    c.node("upsample", size=list(size), mode="bilinear" if mode == "linear" else "nearest",
           **{"in": c.input(last(x))})
    c.expected = last(want)


def concat(c):
    c.floats(*c.x)
    if c.x[0].ndim > 4:
        raise No("more than 4 axes")
    axis = c.a["axis"] % c.x[0].ndim + 1
    c.node("concat", axis=axis, **{"in": "[%s]" % ", ".join(c.input(x[None]) for x in c.x)})
    c.expected = c.want[0][None]


def clip(c):
    c.floats(c.x[0])
    bound = dict(zip(("min", "max"), [None if v is None else float(v) for v in c.x[1:]]))
    bound.update({k: float(c.a[k]) for k in ("min", "max") if k in c.a})
    bound = {k: repr(v) for k, v in bound.items() if v is not None}
    if not bound:
        raise No("neither min nor max, which dagrun refuses")
    if len(bound) == 2 and float(bound["min"]) > float(bound["max"]):
        raise No("min above max, which dagrun refuses")
    c.node("clamp", **bound, **{"in": c.input(c.x[0][None])})
    c.expected = c.want[0][None]


def cross_entropy(c):
    reduction = c.a.get("reduction", b"mean").decode()
    if reduction != "mean":
        raise No(f"reduction {reduction}: losses are means")
    if len(c.want) != 1:
        raise No("log_prob, a second output")
    x, t = c.x[0], c.x[1]
    c.floats(x)
    x = last(x)
    if x.ndim > 5:  # the axes of places are one
        x, t = x.reshape(x.shape[0], -1, x.shape[-1]), t.reshape(t.shape[0], -1)
    attributes = {"ignore_index": c.a.get("ignore_index", -100)}
    if len(c.x) > 2 and c.x[2] is not None:
        attributes["class_weights"] = "[%s]" % ", ".join(repr(float(v)) for v in c.x[2])
    c.input(x)
    c.input(t.astype(np.int32))
    c.loss = attributes
    c.expected = c.want[0].reshape(1)


def nll(c):
    raise No("takes log probabilities: cross_entropy has the softmax in it")


def pointwise(c, op, **attributes):
    c.floats(*c.x)
    if any(x.shape != c.x[0].shape for x in c.x):
        raise No("broadcasting")
    if len(c.x) == 1 and op in ("add",):
        raise No("a sum of one value")
    names = [c.input(x[None]) for x in c.x]
    c.node(op, **attributes, **{"in": names[0] if len(names) == 1 else "[%s]" % ", ".join(names)})
    c.expected = c.want[0][None]


def matmul(c):
    c.floats(*c.x)
    a, b = c.x[0], c.x[1]
    if a.ndim < 2 or b.ndim < 2 or a.shape[:-2] != b.shape[:-2]:
        raise No("broadcasting")
    c.node("matmul", **{"in": "[%s, %s]" % (c.input(a[None]), c.input(b[None]))})
    c.expected = c.want[0][None]


def flatten(c):
    c.floats(c.x[0])
    x = c.x[0]
    if c.a.get("axis", 1) % x.ndim != 1:
        raise No("an axis other than 1")
    c.node("flatten", **{"in": c.input(last(x))})
    c.expected = c.want[0]


def softmax_any(c, opset):
    softmax(c, opset < 13)


CONVERT = {
    "Conv": conv, "ConvTranspose": conv_transpose,
    "MaxPool": lambda c: pool(c, "max_pool2d"), "AveragePool": lambda c: pool(c, "avg_pool2d"),
    "GlobalAveragePool": global_avg_pool, "BatchNormalization": batch_norm, "Softmax": softmax_any,
    "Gemm": gemm, "MatMul": matmul, "Resize": resize, "Concat": concat, "Clip": clip,
    "SoftmaxCrossEntropyLoss": cross_entropy, "NegativeLogLikelihoodLoss": nll, "Flatten": flatten,
    "Relu": lambda c: pointwise(c, "relu"), "Tanh": lambda c: pointwise(c, "tanh"),
    "Sigmoid": lambda c: pointwise(c, "sigmoid"), "Abs": lambda c: pointwise(c, "abs"),
    "Sqrt": lambda c: pointwise(c, "sqrt"), "Add": lambda c: pointwise(c, "add"),
    "Sum": lambda c: pointwise(c, "add"), "Sub": lambda c: pointwise(c, "sub"),
    "Mul": lambda c: pointwise(c, "mul"), "Div": lambda c: pointwise(c, "div"),
    "Gelu": lambda c: pointwise(c, "gelu", approximate=c.a.get("approximate", b"none").decode()),
    "LeakyRelu": lambda c: pointwise(c, "leaky_relu", negative_slope=repr(float(c.a.get("alpha", 0.01)))),
}  # fmt: skip


def sources():
    """(name, node, opset, inputs by the node's names, outputs)"""
    for case in collect_testcases(None):
        graph = case.model.graph
        if len(graph.node) == 1 and graph.node[0].op_type in CONVERT:
            names = [i.name for i in graph.input]
            for inputs, outputs in case.data_sets[:1]:
                yield (case.name, graph.node[0], case.model.opset_import[0].version,
                       dict(zip(names, inputs)), list(outputs))  # fmt: skip
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    for kind in ("pytorch-converted", "pytorch-operator"):
        for name in sorted(os.listdir(os.path.join(folder, kind))):
            base = os.path.join(folder, kind, name)
            model = onnx.load(os.path.join(base, "model.onnx"))
            graph = model.graph
            if len(graph.node) != 1 or graph.node[0].op_type not in CONVERT:
                continue
            values = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
            data = os.path.join(base, "test_data_set_0")
            free = [i.name for i in graph.input if i.name not in values]

            def read(what, k):
                with open(os.path.join(data, f"{what}_{k}.pb"), "rb") as f:
                    return numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))

            values.update({n: read("input", k) for k, n in enumerate(free)})
            yield (name, graph.node[0], model.opset_import[0].version, values,
                   [read("output", k) for k in range(len(graph.output))])  # fmt: skip


def listed(v):
    return "[%s]" % ", ".join(str(i) for i in v) if isinstance(v, list) else str(v)


def yaml_of(c):
    inputs, data = [], []
    for k, x in enumerate(c.inputs):
        shape = "[%s]" % ", ".join(str(d) for d in x.shape[1:])
        kind = ", kind: label" if x.dtype != np.float32 else ""
        inputs.append("x%d: {shape: %s, dtype: %s%s}" % (k, shape, "f32" if not kind else "i32", kind))
        data.append("x%d: {npy: x%d.npy}" % (k, k))
    split = "infer" if c.loss is None else "train"
    lines = ["dagrun: 1", "model: onnx", "inputs: {%s}" % ", ".join(inputs),
             "data: {batch: %d, %s: {%s}}" % (len(c.inputs[0]), split, ", ".join(data))]  # fmt: skip
    if c.loss is not None:
        attributes = ", ".join("%s: %s" % (k, listed(v)) for k, v in c.loss.items())
        lines += ["subgraphs: {net: {nodes: {x: {op: clamp, in: x0, min: -1e30}}}}",
                  "train: {losses: {y: {op: cross_entropy, in: [net.x, x1], %s}}, steps: 1}" % attributes,
                  "eval: {on: train}"]  # fmt: skip
        return lines
    weights = ", weights: {file: DATA, prefix: NAME.}" if c.weights else ""
    lines += ["subgraphs:", "  net:", "    frozen: true"] if c.weights else ["subgraphs:", "  net:"]
    lines += ["    weights: {file: data.safetensors, prefix: %s.}" % c.name] if weights else []
    lines.append("    nodes:")
    for k, (op, attributes) in enumerate(c.nodes):
        name = "y" if k == len(c.nodes) - 1 else "m"
        lines.append("      %s: {op: %s, %s}" % (
            name, op, ", ".join("%s: %s" % (a, listed(v)) for a, v in attributes.items())))
    lines.append("outputs: {y: {in: net.y, npy: y.npy}}")
    return lines


def convert(name, node, opset, values, outputs, tensors):
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    c = Case(attributes, [values[i] if i else None for i in node.input], outputs)
    c.name = name
    c.x = [None if x is None else np.asarray(x) for x in c.x]
    c.want = [np.asarray(x) for x in c.want]
    if node.op_type == "Softmax":
        softmax_any(c, opset)
    else:
        CONVERT[node.op_type](c)
    mine = {f"{name}.x{k}": x for k, x in enumerate(c.inputs)}
    mine.update({f"{name}.{k}": v for k, v in c.weights.items()})
    mine[f"{name}:y"] = c.expected
    size = sum(x.nbytes for x in mine.values())
    if size > LARGEST:
        raise No("%.1f MB of data, which are not kept here" % (size / 1e6))
    tensors.update(mine)
    return yaml_of(c)


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, x in tensors.items():
        n = x.size * 4
        kind = "F32" if x.dtype == np.float32 else "I32"
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            f.write(np.ascontiguousarray(x).astype("<f4" if x.dtype == np.float32 else "<i4").tobytes())


def main():
    tensors, blocks, count = {}, [], collections.Counter()
    for name, node, opset, values, outputs in sources():
        try:
            lines = convert(name, node, opset, values, outputs, tensors)
            blocks.append("= %s %s\n%s\n" % (name, node.op_type, "\n".join(lines)))
            count[node.op_type, True] += 1
        except No as no:
            blocks.append("- %s %s: %s\n" % (name, node.op_type, no))
            count[node.op_type, False] += 1
    write_safetensors(os.path.join(HERE, "data.safetensors"), tensors)
    with open(os.path.join(HERE, "cases.txt"), "w") as f:
        f.write("# Written by convert.py from onnx %s.\n" % onnx.__version__ + "".join(blocks))
    for op in sorted({k[0] for k in count}):
        print("%-26s %3d of %3d" % (op, count[op, True], count[op, True] + count[op, False]))


if __name__ == "__main__":
    main()
