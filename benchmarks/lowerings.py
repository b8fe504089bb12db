"""Layers that are lowered otherwise than XLA or PyTorch would: beside that other way, and beside eager PyTorch.

    OMP_NUM_THREADS=1 python benchmarks/lowerings.py [--repeat 7]

A training step with SGD, CPU seconds of the process, which is pinned to one core. "first": with compiling; "each": the
least of the others. Convolutions of few windows by a large kernel, or by one element, are products of matrices here,
and depthwise ones are sums over the elements of the kernel; the other way is XLA's convolution. Recurrent layers are a
loop on the device; the other way is PyTorch's composition, as PyTorch/XLA has it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

os.environ["XLAPROF_CACHE_DIR"] = "off"  # compiling is part of what is measured

import torch
from models import mobilenet, resnet
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime import parity
from xlaprof.runtime.lowering import depthwise, few_windows


class Case(NamedTuple):
    """A layer, its input, and the other way to lower it."""

    name: str
    layer: Callable[[], nn.Module]
    shape: tuple[int, ...]
    otherwise: Callable[[], Any]  # a context


class Times(NamedTuple):
    """CPU seconds."""

    first: float
    each: float


@contextmanager
def as_convolutions() -> Iterator[None]:
    """No convolution becomes a product of matrices, or a sum."""
    ours = few_windows.are_few, depthwise.is_depthwise
    few_windows.are_few = depthwise.is_depthwise = lambda *_: False
    try:
        yield
    finally:
        few_windows.are_few, depthwise.is_depthwise = ours


@contextmanager
def composed() -> Iterator[None]:
    """Recurrent layers are composed of operations, step by step."""
    before = parity.strict
    parity.strict = True
    try:
        yield
    finally:
        parity.strict = before


CASES = (
    Case("ResNet-18, 4 images of 64 x 64", resnet.resnet18, (4, 3, 64, 64), as_convolutions),
    Case("MobileNetV2, 4 images of 64 x 64", mobilenet.mobilenet_v2, (4, 3, 64, 64), as_convolutions),
    Case("LSTM 64 -> 128, 60 steps", lambda: nn.LSTM(64, 128), (60, 16, 64), composed),
    Case("GRU 64 -> 128, 60 steps", lambda: nn.GRU(64, 128), (60, 16, 64), composed),
)


def measure(case: Case, device: str, repeat: int) -> Times:
    """The steps of a new layer on ``device``."""
    torch.manual_seed(0)
    layer = case.layer().to(device)
    x = torch.randn(case.shape).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    xr.sync(wait=True)
    times = []
    for _ in range(repeat + 1):
        start = time.process_time()
        result = layer(x)
        (result[0] if isinstance(result, tuple) else result).square().mean().backward()
        optimizer.step()
        if device == "xla":
            xr.sync(wait=True)
        times.append(time.process_time() - start)
        optimizer.zero_grad()
    return Times(times[0], min(times[1:]))


def apart(case: int, device: str, *, otherwise: bool, repeat: int) -> Times:
    """The same in a process of its own: JAX keeps what a layer was lowered to."""
    command = [sys.executable, __file__, "--repeat", str(repeat), "--case", str(case), "--device", device]
    done = subprocess.run(
        command + ["--otherwise"] * otherwise, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return Times(*json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="only this one, in this process, as JSON")
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla")
    parser.add_argument("--otherwise", action="store_true")
    args = parser.parse_args()
    if args.case is not None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
        case = CASES[args.case]
        with case.otherwise() if args.otherwise else nullcontext():
            print(json.dumps(measure(case, args.device, args.repeat)))
        return
    columns = "{:34}{:>12}{:>10}{:>13}{:>10}{:>10}"
    print(columns.format("", "here, first", "each", "other, first", "each", "eager"))
    for number, case in enumerate(CASES):
        here = apart(number, "xla", otherwise=False, repeat=args.repeat)
        other = apart(number, "xla", otherwise=True, repeat=args.repeat)
        eager = apart(number, "cpu", otherwise=False, repeat=args.repeat)
        first = [f"{one.first:.2f} s" for one in (here, other)]
        each = [f"{one.each * 1e3:.1f} ms" for one in (here, other, eager)]
        print(columns.format(case.name, first[0], each[0], first[1], each[1], each[2]), flush=True)


if __name__ == "__main__":
    main()
