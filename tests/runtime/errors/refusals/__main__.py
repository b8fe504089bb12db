"""Calls that the CPU refuses, on ``xla``: ``python -m tests.runtime.errors.refusals [--calls 20000] [--seed 0]``.

Each number from --seed on is one call.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # as pytest does: what tests share is found there

from long_run import arguments, long_run

from .calls import Calls, calls


def main() -> int:
    options = arguments("tests.runtime.errors.refusals", __doc__, "calls", 20_000).parse_args()
    return long_run("calls", options, calls, Calls(), part=50)


if __name__ == "__main__":
    sys.exit(main())
