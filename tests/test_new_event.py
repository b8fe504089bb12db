"""A kind of event is added as CONTRIBUTING.md says, and is recorded, read, counted and exported."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

PROGRAM = """
import json, time
from io import BytesIO
import xlaprof
from xlaprof.analysis.run import Run
from xlaprof.events import Checkpoint
from xlaprof.export.host import HostLanes
from xlaprof.export.timeline import Timeline
from xlaprof.export.xplane import Plane, write_space
from xlaprof.recording import recorder
from xlaprof.recording.stacks import user_frames

def save(start, end, size):
EMIT

with xlaprof.record("run.log"):
    now = time.perf_counter_ns()
    save(now, now + 2_000_000, 64)  # the line
reader = xlaprof.read("run.log")
recorded = list(reader)
run = Run().feed_all(recorded)
timeline = Timeline()
lanes = HostLanes(plane := Plane(1, "/host:CPU"), timeline.names)
for event in recorded:
    if timeline.feed(event):
        lanes.feed(event)
[event] = [event for event in recorded if isinstance(event, Checkpoint)]
lanes.finish()
write_space(profile := BytesIO(), [plane], "host", base_ns=timeline.base)
print(json.dumps([event.dur, event.bytes, run.checkpoints, reader.notes, b"checkpoint" in profile.getvalue()]))
"""


def blocks() -> list[str]:
    """The examples of CONTRIBUTING.md's section on events: the struct, its use, its method, its line."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("## Adding an event\n")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def python(cwd: Path, code: str, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_kind_of_event_is_one_struct_and_what_counts_it(tmp_path: Path) -> None:
    struct, emit, method, line = blocks()
    unused = shutil.ignore_patterns("runtime", "torch_xla", "tui", "commands", "__pycache__")
    package = shutil.copytree(ROOT / "xlaprof", tmp_path / "newer" / "xlaprof", ignore=unused)
    events = package / "events" / "__init__.py"
    events.write_text(f"{events.read_text()}\n\n{struct}")
    totals = package / "analysis" / "fold" / "totals.py"
    text = re.sub(r"(self\.handlers: .* = \{\n)", rf"\1{line}", totals.read_text(), count=1)
    totals.write_text(text.replace("    def __init__(", f"{method}\n    def __init__(", 1))
    emit = re.sub("^", "    ", emit, flags=re.MULTILINE)
    found = json.loads(python(tmp_path, PROGRAM.replace("EMIT", emit), package.parent))
    dur, size, counted, notes, drawn = found
    assert (dur, size, counted, notes, drawn) == (2_000_000, 64, 1, [], True)
    # and a version that does not know it says that it skipped it
    log = "import xlaprof; reader = xlaprof.read('run.log'); n = len(list(reader)); print(reader.notes)"
    assert python(tmp_path, log, ROOT) == "('skipped 1 event of unknown kinds: checkpoint (1)',)\n"
