"""Checks that every rank runs, collected by decorating them; each is reported as a test of its own."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable

import xlaprof.runtime as xr

Check = Callable[[int], None]


def run_all(rank: int, checks: dict[str, Check]) -> dict[str, str]:
    """What went wrong in each check, on this rank; nothing is ``""``."""
    reported = {}
    gc.freeze()  # what was imported is not looked at after each check
    for name, check in checks.items():
        try:
            check(rank)
        except Exception:
            reported[name] = f"on rank {rank}:\n{traceback.format_exc()}"
            break  # the other may be elsewhere by now
        reported[name] = ""
        gc.collect()  # an error that was expected holds its frames' tensors
        xr.sync()
    return reported
