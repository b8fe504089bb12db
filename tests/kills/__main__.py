"""Kills of recorded programs: ``python -m tests.kills [--count 1000] [--busy 6] [--seed 0] [--workers 1]``.

Each number from --seed on is one kill. Other processes that never rest make the machine busy: --busy of them.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does: what tests share is found there

from long_run import arguments, long_run

from .killing import Kills, kills, load


def main() -> int:
    seed = random.SystemRandom().randrange(10**6)
    parser = arguments("tests.kills", __doc__, "count", 1_000, seed)
    parser.add_argument("--busy", type=int, default=0, help="so many processes that never rest run beside")
    options = parser.parse_args()
    with load(options.busy):
        return long_run("kills", options, kills, Kills(), part=5)


if __name__ == "__main__":
    sys.exit(main())
