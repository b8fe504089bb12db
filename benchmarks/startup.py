"""What it costs to start: ``import xlaprof``, and ``xlaprof report`` on a small log.

    python benchmarks/startup.py [--log run.log] [--repeat 20]

Wall time and CPU time of fresh processes, the best of the repeats: noise only ever adds. Of the imports, less what a
process costs that does nothing; of the command, all of it, as a user waits for it. Wanted: an import below 30 ms, a
report below 400 ms.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "decoder.log"


def best_ms(command: list[str], repeat: int) -> tuple[float, float]:
    """Wall and CPU time of ``command`` in ms, each the best of ``repeat``, caches of the file system warm."""
    wall, cpu = [], []
    for _ in range(repeat + 1):
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append((time.perf_counter() - started) * 1e3)
        cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return min(wall[1:]), min(cpu[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, default=SAMPLE, help="the log to report on (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    nothing = best_ms([sys.executable, "-c", "pass"], args.repeat)
    print(f"{'':34}  wall ms  CPU ms")
    print(f"{'python -c pass':34}  {nothing[0]:7.1f} {nothing[1]:7.1f}")
    for label, code, wanted in (
        ("import xlaprof", "import xlaprof", "   (wanted: < 30)"),
        ("... and first use of record, Trace", "import xlaprof; xlaprof.record, xlaprof.Trace", ""),
    ):
        wall, cpu = best_ms([sys.executable, "-c", code], args.repeat)
        print(f"{label:34} +{wall - nothing[0]:7.1f} {cpu - nothing[1]:7.1f}{wanted}")
    for verb in (["report"], ["report", "--json"]):
        wall, cpu = best_ms([sys.executable, "-m", "xlaprof", *verb, str(args.log)], args.repeat)
        print(f"{'xlaprof ' + ' '.join(verb):34}  {wall:7.1f} {cpu:7.1f}   (wanted: < 400)")


if __name__ == "__main__":
    main()
