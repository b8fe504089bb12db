"""What ``xlaprof export --to tensorboard`` costs on a long log: CPU time, peak memory, and the size of what it writes.

    python benchmarks/export_tensorboard.py [--events 1000000]
    python benchmarks/export_tensorboard.py --pictures

The pictures of the docs are TensorBoard's of a recording of sample_traces; they need chromium and playwright.
The log is a training of many short steps, ten events each: scopes, a read, a barrier, an execution. Wanted: a million
events in 10 s of CPU and 300 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from xlaprof import events as ev

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
MS = 1_000_000
#: parts of a tab without its menus
_TOOL = {"x": 340, "y": 128, "width": 860, "height": 678}
_TEXT = {"x": 310, "y": 66, "width": 890, "height": 740}
AIM_S, AIM_MB = 10.0, 300
LAYERS = [f"layer {i}" for i in range(6)]


def write_log(path: Path, events: int) -> int:
    """A log of about ``events`` events at ``path``; how many there are."""
    encode = msgspec.json.Encoder().encode
    names = ["train", "aten::_local_scalar_dense", "train.py", "main", "loss.item()", *LAYERS]
    count = 0
    with path.open("wb") as file:

        def put(event: ev.Event) -> None:
            nonlocal count
            file.write(encode(event) + b"\n")
            count += 1

        put(ev.Header(schema=ev.SCHEMA, pid=1, mono_ns=0, unix_ns=1_700_000_000 * 1000 * MS, host="box"))
        for id, text in enumerate(names, 1):
            put(ev.Text(id=id, text=text))
        put(ev.Stack(id=1, frames=[ev.Frame(file=3, line=44, func=4, code=5)]))
        step = 0
        while count < events:
            start = 4 * MS * step
            step += 1
            for i in range(len(LAYERS)):
                put(ev.Scope(name=6 + i, t=start + i * MS // 4, dur=MS // 5, stack=1))
            put(ev.TransferFromDevice(t=start + 2 * MS, dur=MS // 10, wait=MS // 20, bytes=4, op=2, stack=1))
            put(ev.Barrier(t=start + 2 * MS + MS // 5, dur=MS // 10, stack=1, ops=80, execution=step))
            busy = start + 2 * MS + MS // 4
            put(ev.Execute(seq=step, program=1, t=busy, start=busy, end=start + 4 * MS, stack=1))
            put(ev.Step(name=1, num=step, t=start, dur=4 * MS))
        put(ev.End(t=4 * MS * step))
    return count


def pictures() -> None:
    """TensorBoard with an exported run: the overview, a gap in the trace viewer, findings in the Text tab."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT))
    from tests.export.served import served

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        log, logdir = ROOT / "sample_traces" / "decoder.log", Path(folder, "logdir")
        command = [sys.executable, "-m", "xlaprof", "export", str(log), "--to", "tensorboard", "-o", str(logdir)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        (profile,) = logdir.glob("plugins/profile/*/*.xplane.pb")
        run, host = profile.parent.name, profile.name.removesuffix(".xplane.pb")
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(logdir) as board:
            tab = chromium.new_page(viewport={"width": 1200, "height": 806})
            tab.goto(board.page(run, "overview_page", host))
            tab.frame_locator("iframe").get_by_text("Average Step Time").wait_for()
            tab.screenshot(path=PICTURES / "tensorboard-overview.png", clip=_TOOL)
            tab.goto(board.page(run, "trace_viewer@", host))
            viewer = tab.frame_locator("iframe").frame_locator("iframe")
            viewer.get_by_placeholder("Find Events...").click()
            tab.keyboard.type("idle: compile")
            tab.keyboard.press("Enter")
            viewer.get_by_text(" of 3").wait_for()
            viewer.get_by_text("→", exact=True).first.click()
            viewer.get_by_text("ms of compile").locator("visible=true").first.wait_for()
            tab.mouse.click(890, 419)  # the gap itself: what is found is drawn in colour, and all else in grey
            tab.mouse.move(890, 700)
            tab.wait_for_timeout(1000)
            tab.screenshot(path=PICTURES / "tensorboard-gap.png", clip=_TOOL)
            tab.goto(f"{board.address}#text")
            tab.get_by_text("Do what 'tokenize' does before the loop").first.wait_for()
            tab.screenshot(path=PICTURES / "tensorboard-findings.png", clip=_TEXT)
        chromium.close()
    for file in sorted(PICTURES.glob("tensorboard-*.png")):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pictures", action="store_true", help="write the pictures of the docs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.pictures:
        pictures()
        return
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "run.log"), Path(folder, "logdir")
        count = write_log(log, args.events)
        started = time.perf_counter()
        command = [sys.executable, "-m", "xlaprof", "export", str(log), "--to", "tensorboard", "-o", str(out)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        wall = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        files = {file.name: file.stat().st_size / 1e6 for file in out.rglob("*") if file.is_file()}
        figures = {
            "events": count,
            "log_mb": round(log.stat().st_size / 1e6),
            "cpu_s": round(used.ru_utime + used.ru_stime, 1),
            "wall_s": round(wall, 1),
            "peak_mb": round(used.ru_maxrss / 1024),
            "written_mb": round(sum(files.values())),
        }
    if args.json:
        print(json.dumps(figures))
        return
    print(
        f"{figures['events']:,} events, a log of {figures['log_mb']} MB: {figures['cpu_s']:.1f} s of CPU "
        f"(wanted {AIM_S:.0f}), {figures['wall_s']:.1f} s on the clock, "
        f"peak {figures['peak_mb']} MB (wanted {AIM_MB}); {figures['written_mb']} MB written"
    )


if __name__ == "__main__":
    main()
