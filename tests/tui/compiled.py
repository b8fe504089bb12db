"""A real program under ``torch.compile`` with a planted mistake: a print cuts its graph.

``python compiled.py LOG`` records into LOG and calls the function until its standard input ends.
"""

from __future__ import annotations

import sys
import threading

import torch

import xlaprof


@torch.compile(backend="eager")
def fast(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    print("half way", end="\r")  # here the planted break is
    return y + 1


if __name__ == "__main__":
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with xlaprof.record(sys.argv[1]):
        step = 0
        while not stop.wait(0.05):
            with xlaprof.StepTrace("call", step_num=step):
                fast(torch.ones(8))
            step += 1
