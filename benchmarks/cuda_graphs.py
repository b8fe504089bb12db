"""CUDA graphs on a GPU: each mistake is found at its line, and its advice ends it: python benchmarks/cuda_graphs.py

Each program runs twice under ``xlaprof run --json``, with the mistake and as the finding advises. Then: what a
recording adds to a call that replays a CUDA graph. Needs a GPU that PyTorch has CUDA graphs for. An argument names a
folder that keeps the recordings.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

#: processes at a time: most of their time is the import of PyTorch, and compiling
AT_ONCE = 6
HEAD = """
import torch
from torch import nn
import torch._inductor.config as config

config.cpp_cache_precompile_headers = False


def cuda(*size):
    return torch.randn(*size, device="cuda")


"""


class Case(NamedTuple):
    """A mistake, and the same program without. The line that is to be named ends with ``# <--``."""

    name: str
    before: str
    after: str


CASES = (
    Case(
        "an argument is written",
        """
@torch.compile(mode="reduce-overhead")
def step(x, at, cache):
    cache[:, at] = x  # <--
    return cache.sum(1)

cache = torch.zeros(1, 128, 64, device="cuda")
with torch.no_grad():
    for i in range(6):
        step(cuda(1, 64), torch.tensor([i], device="cuda"), cache)
""",
        """
class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 128, 64, device="cuda"))

    def forward(self, x, at):
        self.cache[:, at] = x
        return self.cache.sum(1)

step = torch.compile(Cache(), mode="reduce-overhead")
with torch.no_grad():
    for i in range(6):
        step(cuda(1, 64), torch.tensor([i], device="cuda"))
""",
    ),
    Case(
        "a copy to the host",
        """
@torch.compile(mode="reduce-overhead")
def step(x):
    y = torch.sin(x)
    host = y.cpu()  # <--
    return torch.cos(y) * 2, host

with torch.no_grad():
    for i in range(6):
        step(cuda(64, 64))
""",
        """
@torch.compile(mode="reduce-overhead")
def step(x):
    y = torch.sin(x)
    return torch.cos(y) * 2, y

with torch.no_grad():
    for i in range(6):
        _, y = step(cuda(64, 64))
        host = y.cpu()
""",
    ),
    Case(
        "a size that values decide",
        """
torch._dynamo.config.capture_dynamic_output_shape_ops = True

@torch.compile(mode="reduce-overhead")
def step(x):
    y = torch.sin(x)
    kept = torch.nonzero(y > 0)  # <--
    return kept * 2, torch.cos(y)

with torch.no_grad():
    for i in range(6):
        step(cuda(64))
""",
        """
@torch.compile(mode="reduce-overhead")
def step(x):
    y = torch.sin(x)
    return torch.where(y > 0, torch.arange(64, device="cuda"), 0) * 2, torch.cos(y)

with torch.no_grad():
    for i in range(6):
        step(cuda(64))
""",
    ),
    Case(
        "many sizes",
        """
step = torch.compile(lambda x: torch.relu(x).sum(1), mode="reduce-overhead", dynamic=True)
with torch.no_grad():
    for n in list(range(10, 22)) * 2:
        step(cuda(n, 64))  # <--
""",
        """
step = torch.compile(lambda x: torch.relu(x).sum(1), mode="reduce-overhead", dynamic=True)
with torch.no_grad():
    for n in list(range(10, 22)) * 2:
        step(nn.functional.pad(cuda(n, 64), (0, 0, 0, (16 if n <= 16 else 32) - n)))
""",
    ),
    Case(
        "parameters that move",
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(cuda(64, 64))

    def forward(self, x):
        return x @ self.w  # <--

model = Model()
step = torch.compile(model, mode="reduce-overhead")
kept = []
with torch.no_grad():
    for i in range(8):
        step(cuda(8, 64))
        kept.append(model.w.data)
        model.w.data = cuda(64, 64)
""",
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(cuda(64, 64))

    def forward(self, x):
        return x @ self.w

model = Model()
step = torch.compile(model, mode="reduce-overhead")
with torch.no_grad():
    for i in range(8):
        step(cuda(8, 64))
        model.w.copy_(cuda(64, 64))
""",
    ),
    Case(
        "a tensor of the host",
        """
@torch.compile(mode="reduce-overhead")
def step(x, scale):
    return torch.sin(x) * scale

with torch.no_grad():
    for i in range(6):
        step(cuda(64, 64), torch.tensor(2.0))  # <--
""",
        """
@torch.compile(mode="reduce-overhead")
def step(x, scale):
    return torch.sin(x) * scale

with torch.no_grad():
    for i in range(6):
        step(cuda(64, 64), torch.tensor(2.0, device="cuda"))
""",
    ),
    Case(
        "nothing, in a training",
        """
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
step = torch.compile(model, mode="reduce-overhead")
for i in range(8):
    step(cuda(16, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        "",
    ),
)


def run(name: str, program: str, folder: Path) -> tuple[list[tuple[int, str]], str]:
    """Lines and causes of the findings on CUDA graphs, and what is said of all functions."""
    place = folder / name.replace(" ", "_").replace(",", "")
    place.mkdir(parents=True)
    script = place / "program.py"
    script.write_text(HEAD + program.lstrip())
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(place / "cache"),
        "TRITON_CACHE_DIR": str(place / "triton"),
    }
    command = [sys.executable, "-m", "xlaprof", "run", "--json", "-o", str(place / "run.log"), str(script)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        return [], f"failed: {done.stderr[-300:]}"
    report = json.loads((place / "run.json").read_text())
    found = [(one["line"], one["cause"]) for one in report["findings"] if one["kind"] == "cuda_graph"]
    return found, report["torch_compile"]["cuda_graphs"]["text"]


def marked(program: str) -> list[int]:
    lines = (HEAD + program.lstrip()).splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# <--")]


def tried(case: Case, folder: Path) -> str:
    found, text = run(f"{case.name} before", case.before, folder)
    lines, wanted = sorted({line for line, _ in found}), marked(case.before)
    out = f"{case.name:28} {'right' if lines == wanted else f'WRONG: {lines}, not {wanted}'}: {text}"
    for line, cause in found:
        out += f"\n{'':30}{line}: {cause}"
    if case.after:
        left, text = run(f"{case.name} after", case.after, folder)
        out += f"\n{'':28} {'gone' if not left else f'STILL THERE: {left}'}: {text}"
    return out


def steady() -> str:
    """What a recording adds to a call that replays a CUDA graph: medians of one process, in turn."""
    import torch

    import xlaprof

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).cuda()
    step = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(64, 256, device="cuda")

    def each() -> float:
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        for _ in range(500):
            step(x)
        torch.cuda.synchronize()
        return (time.perf_counter_ns() - began) / 500e3

    off, on = [], []
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for _ in range(4):
            step(x)
        for turn in range(15):
            off.append(each())
            with xlaprof.record(Path(folder) / f"{turn}.log"):
                each()
                on.append(each())
    return f"a call that replays a CUDA graph: {statistics.median(off):.2f} us, recorded {statistics.median(on):.2f} us"


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("PyTorch finds no GPU here: nothing was tried", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            told = list(pool.map(lambda case: tried(case, folder), CASES))
    print("\n".join(told))
    print(steady())
    return int(any("WRONG" in one or "STILL" in one for one in told))


if __name__ == "__main__":
    sys.exit(main())
