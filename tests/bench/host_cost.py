"""PyTorch's CUDA-graph replay of examples/segment_frozen.yaml: what a step costs the device and the host.

The whole step is captured: flip, normalize, the frozen encoder, the decoder with its gradients, SGD with momentum.
Each step copies its inputs from pinned memory and replays. What dagrun does besides is left out here, in the peer's
favour: decoding batches, the learning rate's schedule, reading the loss back, and in fp16 the loss scale. Halves are
torch.autocast's.

    python3 tests/bench/host_cost.py --batch 64 [--precision tf32] [--steps 500] [--json]
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, SIZE, IGNORE = 11, 32, 255


def conv(a, b, bias=True):
    return nn.Conv2d(a, b, 3, padding=1, bias=bias)


def networks(dev):
    encoder = nn.Sequential(conv(1, 16), nn.ReLU(inplace=True), conv(16, 32), nn.ReLU(inplace=True), conv(32, 32),
                            nn.ReLU(inplace=True))
    decoder = nn.Sequential(conv(32, 32, False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), conv(32, 32, False),
                            nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, CLASSES, 1))
    for m in list(encoder) + list(decoder):
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
    layout = torch.channels_last
    return encoder.to(dev, memory_format=layout).requires_grad_(False), decoder.to(dev, memory_format=layout)


class Step:
    """The captured step, its static inputs, and the pinned batches that they are copied from."""

    def __init__(self, batch, half=None, dev="cuda", slots=8):
        self.half = half
        self.encoder, self.decoder = networks(dev)
        self.sgd = torch.optim.SGD(self.decoder.parameters(), lr=0.05, momentum=0.9, fused=True)
        self.image = torch.zeros(batch, SIZE, SIZE, 1, dtype=torch.uint8, device=dev)
        self.mask = torch.zeros(batch, SIZE, SIZE, dtype=torch.uint8, device=dev)
        self.host = [(torch.randint(0, 256, self.image.shape, dtype=torch.uint8).pin_memory(),
                      torch.randint(0, CLASSES, self.mask.shape, dtype=torch.uint8).pin_memory())
                     for _ in range(slots)]
        self.at = 0
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                self.train()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        self.sgd.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.loss = self.train()

    def train(self):
        flip = torch.rand(self.image.shape[0], device=self.image.device) < 0.5
        image = torch.where(flip[:, None, None, None], self.image.flip(2), self.image)
        mask = torch.where(flip[:, None, None], self.mask.flip(2), self.mask)
        x = ((image.float() * (1 / 255) - 0.2) / 0.25).permute(0, 3, 1, 2)  # NHWC in memory: channels_last
        with torch.autocast("cuda", dtype=self.half, enabled=self.half is not None):
            with torch.no_grad():
                x = self.encoder(x)
            loss = F.cross_entropy(self.decoder(x), mask.long(), ignore_index=IGNORE)
        self.sgd.zero_grad(set_to_none=True)
        loss.backward()
        self.sgd.step()
        return loss.detach()

    def __call__(self):
        image, mask = self.host[self.at % len(self.host)]
        self.at += 1
        self.image.copy_(image, non_blocking=True)
        self.mask.copy_(mask, non_blocking=True)
        self.graph.replay()


def free_running(step, n):
    """Steps per second, nothing waited for but the end."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        step()
    torch.cuda.synchronize()
    return n / (time.perf_counter() - start)


def step_ms(step, n):
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))


def host_us(step, n, run=16):
    """Time in the calls of a step. Short runs between synchronisations, so that no queue fills up and makes them wait."""
    each = []
    for _ in range(max(1, n // run)):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(run):
            step()
        each.append((time.perf_counter() - start) / run * 1e6)
    torch.cuda.synchronize()
    return statistics.median(each)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--precision", choices=["fp32", "tf32", "fp16", "bf16"], default="fp32")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = a.precision != "fp32"
    torch.manual_seed(7)
    step = Step(a.batch, {"fp16": torch.float16, "bf16": torch.bfloat16}.get(a.precision))
    free_running(step, 50)
    out = {
        "peer": "PyTorch graph, " + a.precision,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "batch": a.batch,
        "steps": a.steps,
        "steps_per_s": free_running(step, a.steps),
        "median": step_ms(step, a.steps) * 1e-3,
        "host_us_per_step": host_us(step, a.steps),
        "loss": float(step.loss),
    }
    if a.json:
        print(json.dumps(out))
    else:
        print("%(peer)s, batch %(batch)d: %(steps_per_s).1f steps/s, median %(ms).3f ms, host %(host_us_per_step).1f us a step, "
              "loss %(loss).4f" % dict(out, ms=out["median"] * 1e3))


if __name__ == "__main__":
    main()
