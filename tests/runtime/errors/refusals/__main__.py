"""Calls that the CPU refuses, on ``xla``: ``python -m tests.runtime.errors.refusals [--calls 20000] [--large]``.

Each number from --seed on is one call. With --large each is taken for too large to be made on the CPU.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # as pytest does: what tests share is found there

from long_run import arguments, long_run

from .calls import Calls, calls


def main() -> int:
    parser = arguments("tests.runtime.errors.refusals", __doc__, "calls", 20_000)
    parser.add_argument("--large", action="store_true", help="take each call for too large to be made on the CPU")
    options = parser.parse_args()
    return long_run("calls", options, partial(calls, large=options.large), Calls(), part=50)


if __name__ == "__main__":
    sys.exit(main())
