"""What it costs to start: ``import xlaprof``, and ``xlaprof report`` on a small log.

    python benchmarks/startup.py [--log run.log] [--repeat 15]

Each figure is the median wall time of fresh processes, less that of a process that does nothing (for the import) or
with it (for the command, as a user waits for it). Wanted: import < 30 ms, report < 400 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "decoder.log"


def median_ms(command: list[str], repeat: int) -> float:
    """Median wall time of ``command``, after one run that warms the caches of the file system."""
    times = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, default=SAMPLE, help="the log to report on (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=15)
    args = parser.parse_args()
    nothing = median_ms([sys.executable, "-c", "pass"], args.repeat)
    importing = median_ms([sys.executable, "-c", "import xlaprof"], args.repeat)
    names = "import xlaprof; xlaprof.record, xlaprof.Trace, xlaprof.StepTrace"
    using = median_ms([sys.executable, "-c", names], args.repeat)
    print(f"python -c pass                     {nothing:6.1f} ms")
    print(f"import xlaprof                    +{importing - nothing:6.1f} ms   (wanted: < 30)")
    print(f"  and record, Trace, StepTrace    +{using - nothing:6.1f} ms")
    for arguments in (["report"], ["report", "--json"]):
        took = median_ms([sys.executable, "-m", "xlaprof", *arguments, str(args.log)], args.repeat)
        print(f"xlaprof {' '.join(arguments):25}  {took:6.1f} ms   (wanted: < 400)")


if __name__ == "__main__":
    main()
