"""The demo: the same training with its mistakes and without, both recorded, both explained. ``make demo`` runs it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(os.path.relpath(__file__)).parent
OUTPUT = Path("demo-output")
STEPS = 60


def main() -> None:
    os.environ["XLAPROF_CACHE_DIR"] = "off"  # the second demo, too, shows what compiling takes
    OUTPUT.mkdir(exist_ok=True)
    runs = {name: OUTPUT / f"{name}.log" for name in ("decoder", "decoder_fixed")}

    heading(f"1. A small language model learns to read, {STEPS} steps on the xla device")
    print("Twice: examples/decoder.py has four mistakes that people make, examples/decoder_fixed.py has none.\n")
    for name, log in runs.items():
        started = time.perf_counter()
        run(HERE / f"{name}.py", "--steps", STEPS, "--record", log)
        print(f"  {time.perf_counter() - started:.1f} s, compilation included; recorded into {log}\n")

    heading("2. What went wrong in the first run: the findings, largest gain first")
    run("-m", "xlaprof", "report", runs["decoder"])

    heading("3. The second run, after the fixes")
    run("-m", "xlaprof", "report", runs["decoder_fixed"])

    heading("4. The gain")
    before, after = (step_time(log) for log in runs.values())
    print(f"Step time (median): {before * 1e3:.1f} ms with the mistakes, {after * 1e3:.1f} ms without", end="")
    print(f": {before / after:.1f} times as fast.\n")
    print("Next:  xlaprof live LOG     follow a recording in the terminal, while it grows or afterwards")
    print(f"       xlaprof export {runs['decoder']} --to tensorboard -o {OUTPUT / 'tensorboard'}")
    print("       xlaprof run your_script.py")


def heading(text: str) -> None:
    print(f"\n{'=' * 100}\n{text}\n{'=' * 100}\n", flush=True)


def run(*command: object) -> None:
    """Run ``python *command`` in view of the reader, and stop the demo where it fails."""
    words = [str(word) for word in command]
    shown = ["xlaprof", *words[2:]] if words[:2] == ["-m", "xlaprof"] else ["python", *words]
    print(f"$ {shlex.join(shown)}", flush=True)
    if code := subprocess.run([sys.executable, *words], check=False).returncode:
        sys.exit(f"the demo stops here: exit code {code}")


def step_time(log: Path) -> float:
    """Median step time of a recording, in seconds."""
    done = subprocess.run(
        [sys.executable, "-m", "xlaprof", "report", "--json", str(log)], stdout=subprocess.PIPE, check=True
    )
    return float(json.loads(done.stdout)["steps"]["median_s"])


if __name__ == "__main__":
    main()
