"""Run the program of each page of docs/findings, and write into the page what the report says of it.

    python benchmarks/finding_pages.py [KIND ...] [--check]

A page shows how its finding looks: the first program is recorded and reported as a user would, 80 columns wide, and the
block of the finding replaces the one under "How it looks". ``--check`` writes nothing, and fails where a program no
longer has its finding.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.progress import track

PAGES = Path(__file__).parent.parent / "docs" / "findings"
_PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
_LOOKS = re.compile(r"(## How it looks\n\n```\n).*?(```\n)", re.DOTALL)


def looks(kind: str, program: str) -> str:
    """The block that the report of ``program`` has for its first finding of this kind; "" where it has none."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program.replace("  # <--", ""))
        _xlaprof("run", "--no-report", "-o", "run.log", "train.py", cwd=folder)
        log = Path(folder, "run.log")
        log.write_text(log.read_text().replace(f"{os.path.realpath(folder)}{os.sep}", ""))  # a page is read elsewhere
        report = _xlaprof("report", "run.log", cwd=folder)
    block = re.search(rf"^ *\d+ ({kind} .*?)(?:\n\n|\Z)", report, re.DOTALL | re.MULTILINE)
    numbered = re.sub(r"(explain run.log) [0-9]+", r"\1 1", block[1].rstrip()) if block else ""
    return f" 1 {numbered}\n" if block else ""


def _xlaprof(*words: str, cwd: str) -> str:
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "XLAPROF_CACHE_DIR": "off"}
    command = [sys.executable, "-m", "xlaprof", *words]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"xlaprof {' '.join(words)} failed with exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def main() -> int:
    known = sorted(page.stem for page in PAGES.glob("*.md") if _PROGRAM.search(page.read_text()))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(known):
        parser.error(f"no page with a program: {', '.join(sorted(unknown))} (there are {', '.join(known)})")
    missed = []
    for kind in track(args.kinds or known, description="pages"):
        page = PAGES / f"{kind}.md"
        text = page.read_text()
        block = looks(kind, _PROGRAM.findall(text)[0])
        if not block:
            missed.append(kind)
        elif not args.check:
            page.write_text(_LOOKS.sub(lambda found, block=block: f"{found[1]}{block}{found[2]}", text))
    for kind in missed:
        print(f"{kind}: its program no longer has this finding", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
