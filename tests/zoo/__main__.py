"""``python -m tests.zoo [docs/parity.md] [NAME ...]``: run the programs, compare, and write the page.

The differences are printed. The exit code is 1 if strict mode counts differently from torch_xla 2.9.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .page import page
from .programs import Counts, names, peer, run


def main(arguments: list[str]) -> int:
    pages = [a for a in arguments if a.endswith(".md")]
    chosen = [a for a in arguments if a not in pages] or names()
    found: dict[str, tuple[Counts, Counts, Counts]] = {}
    wrong = 0
    for name in chosen:
        there, ours, strict = found[name] = (peer(name), run(name, strict=False), run(name, strict=True))
        left = strict.differences(there)
        wrong += bool(left)
        print(f"{name:26} default {ours.differences(there) or 'same'}; strict {left or 'same'}", flush=True)
    for target in pages:
        Path(target).write_text(page(found))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
