#!/usr/bin/env python3
"""Writes the reference files of tests/test_torch.c with PyTorch, on its CPU, in float32:

    python3 tests/data/make_torch.py tests/data/torch

resnet.safetensors  a ResNet-18 (eight basic blocks) of widths 8 to 64 with a 3x3 stem: its state_dict under "net."
resnet_in.npy       four images [4, 16, 16, 3]
resnet_out.npy      its logits in evaluation [4, 10]
unet.*              the same of a U-Net with two levels: [4, 16, 16, 1] to [4, 16, 16, 4]
train.safetensors   a small network before training
train_images.npy    [160, 8, 8, 1] float32, in the order of ten batches of 16
train_labels.npy    [160] uint8
sgd_losses.npy      the loss of each of ten steps of SGD [10]
adamw_losses.npy    of AdamW, from the same weights

Modules are called as the nodes of the YAML files beside the references, so that state_dict's names fit as they are.
The files are written here, so that nothing but PyTorch is needed.
"""
import copy
import json
import os
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

TYPES = {torch.float32: ("F32", "<f4", "f"), torch.int64: ("I64", "<i8", "q"), torch.uint8: ("U8", "|u1", "B")}


def raw(t):
    flat = t.detach().contiguous().reshape(-1).tolist()
    return struct.pack("<%d%s" % (len(flat), TYPES[t.dtype][2]), *flat)


def write_safetensors(path, module):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, t in module.state_dict(prefix="net.").items():
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


def write_npy(path, t):
    shape = "(%s)" % "".join("%d, " % n for n in t.shape)
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (TYPES[t.dtype][1], shape)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw(t))


class Cbr(nn.Module):
    def __init__(self, c, k, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(k)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Basic(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.c1 = Cbr(c, k, 1 if c == k else 2)
        self.c2 = nn.Conv2d(k, k, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(k)
        self.down = c != k
        if self.down:
            self.cs = nn.Conv2d(c, k, 1, 2, bias=False)
            self.bs = nn.BatchNorm2d(k)

    def forward(self, x):
        return F.relu(self.b2(self.c2(self.c1(x))) + (self.bs(self.cs(x)) if self.down else x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Cbr(3, 8)
        self.layer1 = nn.Sequential(Basic(8, 8), Basic(8, 8))
        self.l2a, self.l2b = Basic(8, 16), Basic(16, 16)
        self.l3a, self.l3b = Basic(16, 32), Basic(32, 32)
        self.l4a, self.l4b = Basic(32, 64), Basic(64, 64)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.l2b(self.l2a(self.layer1(self.stem(x))))
        x = self.l4b(self.l4a(self.l3b(self.l3a(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Double(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.a, self.b = Cbr(c, k), Cbr(k, k)

    def forward(self, x):
        return self.b(self.a(x))


class Up(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.t = nn.ConvTranspose2d(c, k, 2, 2)
        self.d = Double(2 * k, k)

    def forward(self, x, skip):
        return self.d(torch.cat([skip, self.t(x)], 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = Double(1, 8), Double(8, 16), Double(16, 32)
        self.u2, self.u1 = Up(32, 16), Up(16, 8)
        self.logits = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        s1 = self.d1(x)
        s2 = self.d2(F.max_pool2d(s1, 2))
        x = self.mid(F.max_pool2d(s2, 2))
        return self.logits(self.u1(self.u2(x, s2), s1))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.n1 = nn.BatchNorm2d(8)
        self.c2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.n1(self.c1(x))), 2)
        return self.fc(F.relu(self.c2(x)).flatten(1))


def randomize(module):
    """Every weight, bias and statistic gets a value that its absence or misplacement would show."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.2)
            nn.init.normal_(m.running_mean, 0, 0.2)
            nn.init.uniform_(m.running_var, 0.5, 2)
        elif isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight)


def evaluation(out, name, module, images):
    randomize(module)
    module.eval()
    with torch.no_grad():
        y = module(images)
    write_safetensors(os.path.join(out, name + ".safetensors"), module)
    write_npy(os.path.join(out, name + "_in.npy"), images.permute(0, 2, 3, 1))
    write_npy(os.path.join(out, name + "_out.npy"), y.permute(0, 2, 3, 1) if y.dim() == 4 else y)


def training(module, optimizer, images, labels):
    module.train()
    losses = []
    for x, y in zip(images.split(16), labels.split(16)):
        loss = F.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def main(out):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    os.makedirs(out, exist_ok=True)
    evaluation(out, "resnet", ResNet(), torch.randn(4, 3, 16, 16))
    evaluation(out, "unet", UNet(), torch.randn(4, 1, 16, 16))

    small, images, labels = Small(), torch.randn(160, 1, 8, 8), torch.randint(10, (160,))
    write_safetensors(os.path.join(out, "train.safetensors"), small)
    write_npy(os.path.join(out, "train_images.npy"), images.permute(0, 2, 3, 1))
    write_npy(os.path.join(out, "train_labels.npy"), labels.to(torch.uint8))
    a, b = small, copy.deepcopy(small)
    sgd = torch.optim.SGD(a.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    adamw = torch.optim.AdamW(b.parameters(), lr=1e-3, weight_decay=0.01)
    write_npy(os.path.join(out, "sgd_losses.npy"), training(a, sgd, images, labels))
    write_npy(os.path.join(out, "adamw_losses.npy"), training(b, adamw, images, labels))


if len(sys.argv) != 2:
    sys.exit("usage: make_torch.py FOLDER")
main(sys.argv[1])
