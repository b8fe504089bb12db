"""What it costs a first training step that the CPU is asked for PyTorch's refusals (docs/reliability.md).

    OMP_NUM_THREADS=1 python benchmarks/rehearsals.py [--any-size] [--layers 2] [--width 768]

transformers' BERT with AdamW: two training steps. Calls whose stand-ins are large are cut down; with --any-size they
are made as they are. CPU time of asking beside that of the whole step, most of which is XLA's compilation.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from typing import Any

from compile_cost import make_step

import xlaprof.runtime as xr
from xlaprof.runtime.dispatch import fallback
from xlaprof.runtime.shapes import infer, rehearse

os.environ["XLAPROF_CACHE_DIR"] = "off"  # compiling is part of what is measured


class Asked:
    """In place of :func:`rehearse.refuse`: counts its calls and their CPU s."""

    def __init__(self) -> None:
        self.calls, self.spent = 0, 0.0

    def __call__(self, *call: Any) -> None:
        self.calls += 1
        start = time.process_time()
        try:
            rehearse.refuse(*call)
        finally:
            self.spent += time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--any-size", action="store_true", help="make large calls as they are")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    if options.any_size:
        rehearse._EACH = rehearse.LIMIT
    step = make_step(options.layers, options.width)
    gc.collect()
    gc.freeze()  # what the libraries made is not looked through while a call is timed
    for name in ("first", "second"):
        asked = infer.refuse = fallback.refuse = Asked()  # type: ignore[assignment]
        start = time.process_time()
        step()
        xr.sync(wait=True)
        whole = time.process_time() - start
        print(
            f"{name} step: {asked.calls} signatures asked for in {asked.spent * 1e3:.1f} ms of {whole:.2f} s of CPU "
            f"({asked.spent / whole:.2%})"
        )


if __name__ == "__main__":
    main()
