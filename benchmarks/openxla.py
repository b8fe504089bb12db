"""Lazy mode and torch.compile(backend="openxla") on the documents' ten models, and on the peers' llama.

    OMP_NUM_THREADS=1 python benchmarks/openxla.py [--quick] [--models resnet18 ViT ...] [--repeat 7]

The documents' speed-up is lazy time over Dynamo's, for inference, and for the forward and backward pass of one training
step, on a TPU that is faster than the host. On a CPU the device's work is most of either, so beside the speed-up of the
whole step stands that of the host's part: CPU time of the calling threads until everything is handed over, which is
what an accelerator would wait for. Beside them stand lazy mode's and Dynamo's time over eager PyTorch's on the CPU.
Process CPU time on one core (the process pins itself), best of the repeats. ``--quick`` takes images of 64 x 64.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import os
import threading
import time
from collections.abc import Callable

import machine
import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from models import MODELS, batch

import xlaprof.runtime as xr
from xlaprof.runtime.dynamo import executable

os.environ.setdefault("XLAPROF_CACHE_DIR", "off")  # compiling is part of what is measured

#: the documents' speed-ups, on a TPU v4-8: model -> (inference, training)
DOCUMENTS = {
    "resnet18": (2.59, 1.33),
    "resnet50": (2.64, 1.33),
    "resnext50_32x4d": (1.91, 1.43),
    "alexnet": (1.28, 1.12),
    "mobilenet_v2": (18.62, 1.4),
    "mnasnet1_0": (2.68, 1.19),
    "vgg16": (1.33, 0.81),
    "BERT": (7.49, 3.07),
    "squeezenet1_1": (2.29, 1.41),
    "ViT": (3.52, 1.87),
}
MEANS = (3.04, 1.41)
#: torch_xla 2.9's host time of one inference of the llama, ms: openxla, and lazy (recording and sync)
PEER = (0.46, 1.83 + 0.29)

Step = Callable[[], object]


def host_clock() -> Callable[[], float]:
    """CPU s of the threads that run the program: this one, and autograd's for the device."""
    idents: list[int] = []
    x = torch.ones(1, device="xla", requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: idents.append(threading.get_ident()))
    y.sum().backward()
    clocks = [time.pthread_getcpuclockid(ident) for ident in {*idents, threading.get_ident()}]
    return lambda: sum(map(time.clock_gettime, clocks))


def best(step: Step, repeat: int) -> tuple[float, float]:
    """Least CPU ms of ``step``: the host's until all is handed over, and all with the device's."""
    host, whole = [], []
    clock = host_clock()
    for i in range(repeat + 3):
        start = time.process_time(), clock()
        held = step()
        handed = clock() - start[1]
        xr.wait_device_ops()
        if i >= 3:  # the first compile, or find what was compiled
            host.append(handed)
            whole.append(time.process_time() - start[0])
        del held
    return min(host) * 1e3, min(whole) * 1e3


def eager(model: torch.nn.Module, x: torch.Tensor, train: bool, repeat: int) -> float:
    """Least CPU ms of the same step in PyTorch's eager mode on the CPU."""
    model.train(train)

    def step() -> object:
        with torch.set_grad_enabled(train):
            y = model(x)
        if train:
            model.zero_grad(set_to_none=True)
            y.sum().backward()
        return y

    return best(step, repeat)[1]


def inference(model: torch.nn.Module, x: torch.Tensor) -> tuple[Step, Step]:
    """One forward pass: lazy, openxla."""
    fast = torch.compile(model.eval(), backend="openxla")

    def lazy() -> object:
        with torch.no_grad():
            y = model(x)
        xr.sync()
        return y

    def compiled() -> object:
        with torch.no_grad():
            return fast(x)

    return lazy, compiled


def training(model: torch.nn.Module, x: torch.Tensor) -> tuple[Step, Step]:
    """One forward and backward pass: lazy, openxla."""

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum()

    model.train()
    fast = torch.compile(loss_of, backend="openxla")

    def step(run: Callable[[torch.Tensor], torch.Tensor]) -> object:
        model.zero_grad(set_to_none=True)
        loss = run(x)
        loss.backward()
        xr.sync()
        return loss

    return lambda: step(loss_of), lambda: step(fast)


def measure(name: str, args: argparse.Namespace) -> list[tuple[float, float, float, float]]:
    """``(speed-up of the whole step, of the host's part, lazy / eager, openxla / eager)`` in inference and training."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = MODELS[name][0]()
    size = (64, 16) if args.quick else (224, 128)
    x = batch(name, args.batch, *size)
    there = [eager(copy.deepcopy(model), x, train, args.repeat) for train in (False, True)]
    model, x = model.to("xla"), x.to("xla")
    xr.sync(wait=True)
    ratios = []
    for kind, at_once in zip((inference, training), there, strict=True):
        lazy, compiled = kind(copy.deepcopy(model) if kind is inference else model, x)
        xr.sync(wait=True)
        (lazy_host, lazy_whole), (host, whole) = best(lazy, args.repeat), best(compiled, args.repeat)
        ratios.append((lazy_whole / whole, lazy_host / host, lazy_whole / at_once, whole / at_once))
    return ratios


def dynamo_alone(repeat: int) -> float:
    """Least CPU ms that the call of a compiled llama on the CPU takes if nothing is computed: Dynamo and its guards.

    Between the calls a model runs, as the device does in between elsewhere: what the processor remembers is gone.
    """
    torch._dynamo.reset()
    between, model = Llama().eval(), Llama().eval()
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    nothing = (torch.zeros(1),)
    fast = torch.compile(model, backend=lambda graph, inputs: lambda *args: nothing)
    spent = []
    with torch.no_grad():
        for _ in range(repeat + 1):
            between(tokens)
            start = time.thread_time()
            fast(tokens)
            spent.append(time.thread_time() - start)
    return min(spent) * 1e3


def llama(repeat: int) -> None:
    """Host time of one inference of the llama."""
    torch.manual_seed(0)
    model = Llama().to("xla").eval()
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH)).to("xla")
    xr.sync(wait=True)
    lazy, compiled = inference(model, tokens)
    spent: list[float] = []
    run = executable.Executable._run

    def timed(self: executable.Executable, *args: object) -> object:
        start = time.thread_time()
        try:
            return run(self, *args)  # type: ignore[arg-type]
        finally:
            spent.append(time.thread_time() - start)

    lazy_host, _ = best(lazy, repeat)
    host, _ = best(compiled, repeat)
    executable.Executable._run = timed  # type: ignore[method-assign, assignment]
    best(compiled, repeat)
    executable.Executable._run = run  # type: ignore[method-assign]
    handing = min(spent) * 1e3
    alone = dynamo_alone(repeat)
    print("llama inference, CPU ms of the host (torch_xla 2.9's in brackets)")
    print(
        f"  openxla {host:.2f} ({PEER[0]:.2f}), of which {handing:.2f} hand the program to XLA; "
        f"Dynamo alone, with a backend that does nothing and the model on the CPU: {alone:.2f}"
    )
    print(f"  lazy    {lazy_host:.2f} ({PEER[1]:.2f})")


def row(values: tuple[float, ...]) -> str:
    return "".join(f"{value:14.2f}" for value in values)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="images of 64 x 64, sequences of 16")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(machine.tell())
    llama(max(args.repeat, 20))
    titles = ("whole", "host", "documents", "lazy/eager", "openxla/eager")
    print(f"\n{'lazy / openxla':18}" + 2 * "".join(f"{title:>14}" for title in titles))
    print(" " * 18 + f"{'inference':>14}" + " " * 14 * (len(titles) - 1) + f"{'training':>14}")
    rows = []
    for name in args.models:
        kinds = measure(name, args)
        rows.append([value for kind in kinds for value in kind])
        there = zip(kinds, DOCUMENTS[name], strict=True)
        print(f"{name:18}" + "".join(row((*kind[:2], peer, *kind[2:])) for kind, peer in there), flush=True)
        gc.collect()
        xr.clear_compile_cache()
    if rows:
        means = [geometric_mean(list(column)) for column in zip(*rows, strict=True)]
        halves = zip((means[:4], means[4:]), MEANS, strict=True)
        print(f"{'geometric mean':18}" + "".join(row((*half[:2], peer, *half[2:])) for half, peer in halves))


if __name__ == "__main__":
    main()
