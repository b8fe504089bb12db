"""Runs the benchmarks one after the other, each in a process of its own: ``python -m benchmarks [NAME ...]``.

Those that run for longer than half an hour, write pages or want a recording run when they are named.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMED = {"diagnosis", "diffusion_case", "finding_pages", "gains", "timeline", "wild"}


def benchmarks() -> dict[str, Path]:
    """The scripts of this folder; modules that they share have no ``__main__`` part."""
    scripts = (file for file in sorted(HERE.glob("*.py")) if not file.name.startswith("_"))
    return {file.stem: file for file in scripts if '__name__ == "__main__"' in file.read_text()}


def main() -> int:
    known = benchmarks()
    wanted = sys.argv[1:] or [name for name in known if name not in NAMED]
    if unknown := [name for name in wanted if name not in known]:
        print(f"no benchmark named {', '.join(unknown)}: there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in wanted:
        summary = (ast.get_docstring(ast.parse(known[name].read_text())) or "").partition("\n")[0]
        print(f"\n== {name}: {summary}\n", flush=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XLAPROF_CACHE_DIR": "off"}
        done = subprocess.run([sys.executable, str(known[name])], env=environment, check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
