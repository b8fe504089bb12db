"""The figures of docs/reliability.md: ``python -m tests.mutations [--count 1000] [--seed 0] [--workers 2]``.

Each number from --seed on makes one log, which goes through one door, in turns (--all: through all of them). Failures
are shown with their number, and the fewest lines of that log that fail the same way.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does: what tests share is found there

from long_run import arguments, long_run

from .doors import DOORS
from .sweep import Done, part


def main() -> int:
    parser = arguments("tests.mutations", __doc__, "count", 1_000)
    parser.add_argument("--door", choices=list(DOORS), action="append", help="only this one")
    parser.add_argument("--all", action="store_true", help="each log through each door")
    options = parser.parse_args()
    work = partial(part, doors=options.door or list(DOORS), every_door=options.all, stop=options.stop)
    return long_run("logs", options, work, Done(), part=100)


if __name__ == "__main__":
    sys.exit(main())
