"""Random programs: ``python -m tests.runtime.semantics [--programs 20000] [--seed 0] [--workers 2]``.

Each number from --seed on is one program; without --seed there are others every day.
"""

from __future__ import annotations

import sys
from datetime import date
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest does: what tests share is found there

from long_run import arguments, long_run

from .programs import Programs, sweep


def main() -> int:
    parser = arguments("tests.runtime.semantics", __doc__, "programs", 20_000, date.today().toordinal() * 20_000)
    parser.add_argument("--statements", type=int, default=10, help="at most, in a program")
    options = parser.parse_args()
    return long_run("programs", options, partial(sweep, statements=options.statements), Programs(), part=20)


if __name__ == "__main__":
    sys.exit(main())
