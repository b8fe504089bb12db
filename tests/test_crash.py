"""Programs that do not end well: killed, out of disk, forked, exited from anywhere. Real processes, real signals."""

import errno
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recording import Recorded

import xlaprof
from xlaprof.events import Dropped, End, Header, Scope


def run(program: str, log: Path, *, code: int = 0, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program, given the log as its argument; its exit code must be ``code``."""
    command = [sys.executable, "-W", "error", "-c", program, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]
    assert done.returncode == code, done.stderr
    return done  # type: ignore[no-any-return]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


# -- kill -9 --------------------------------------------------------------------------------------------------------

TRAINS_FOREVER = """
import itertools, sys, time, xlaprof
xlaprof.start_recording(sys.argv[1])
for i in itertools.count():
    with xlaprof.StepTrace("train", step_num=i):
        with xlaprof.Trace("forward"):
            began = time.perf_counter_ns()
            while time.perf_counter_ns() - began < STEP_NS:
                pass
    # the pipe is the truth: what it says had happened when the process was killed
    sys.stdout.write(f"{i} {time.perf_counter_ns()}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("step_ns", [20_000, 3_000_000, 150_000_000])
def test_kill_9_loses_at_most_the_last_100_ms(log: Path, step_ns: int) -> None:
    program = TRAINS_FOREVER.replace("STEP_NS", str(step_ns))
    with subprocess.Popen([sys.executable, "-c", program, str(log)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        reports = [child.stdout.readline()]
        began = int(reports[0].split()[1])
        while int(reports[-1].split()[1]) - began < 700_000_000:
            reports.append(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        reports += child.stdout.readlines()
    done = [(int(number), int(t)) for number, t in (line.split() for line in reports if line.endswith("\n"))]
    recorded = Recorded(log)
    assert isinstance(recorded.events[0], Header)
    assert not recorded.of(End)
    known = {event.num for event in recorded.events if type(event).__name__ in ("Step", "StepDigest")}
    last = done[-1][1]
    # A busy machine lets the writer wait as it let the program itself wait: its longest stall is its grace.
    times = [began, *(t for _, t in done)]
    stall = max(after - before for before, after in itertools.pairwise(times))
    missing = [number for number, t in done if number not in known and t < last - 140_000_000 - 2 * stall]
    assert missing == []
    assert len(done) > 3


def test_a_program_that_leaves_by_os_exit_loses_only_what_was_not_written_yet(log: Path) -> None:
    run(
        """
import os, sys, xlaprof
from xlaprof.recording import recorder
xlaprof.start_recording(sys.argv[1])
with xlaprof.Trace("written"):
    pass
while b'"scope"' not in open(sys.argv[1], "rb").read():
    pass
os._exit(0)
""",
        log,
    )
    recorded = Recorded(log)
    assert recorded.scopes == [("written", 0)]
    assert not recorded.of(End)


# -- ends in order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_line", "code", "error"),
    [
        ("pass", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit('bad')", 1, ""),
        ("raise ValueError('boom')", 1, "ValueError"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("class MyError(Exception): pass\nraise MyError", 1, "MyError"),
    ],
)
def test_the_end_of_the_program_closes_the_log(log: Path, last_line: str, code: int, error: str) -> None:
    done = run(
        "import sys, xlaprof\nxlaprof.start_recording(sys.argv[1])\nwith xlaprof.Trace('work'): pass\n" + last_line,
        log,
        code=code,
    )
    recorded = Recorded(log)
    assert recorded.scopes == [("work", 0)]
    assert isinstance(recorded.events[-1], End)
    assert recorded.events[-1].error == error
    assert "xlaprof" not in done.stderr.replace(".start_recording", "")


def test_a_thread_that_still_runs_at_the_end_does_no_harm(log: Path) -> None:
    run(
        """
import sys, threading, xlaprof
xlaprof.start_recording(sys.argv[1])
ready = threading.Event()
def forever():
    while True:
        with xlaprof.Trace("background"):
            pass
        ready.set()
threading.Thread(target=forever, daemon=True).start()
ready.wait()
""",
        log,
    )
    assert isinstance(Recorded(log).events[-1], End)


# -- forks ----------------------------------------------------------------------------------------------------------


def test_a_forked_child_writes_nothing_into_the_parents_log_and_may_record_itself(log: Path) -> None:
    run(
        """
import os, sys, xlaprof
from xlaprof.recording import recorder
from xlaprof.events import Gc
rec = xlaprof.record(sys.argv[1]).start()
held = recorder.active
with xlaprof.Trace("around the fork"):
    child = os.fork()
    if child == 0:
        assert recorder.active is None
        held.emit(Gc(1, 1, 0))
        held.text("in the child"), held.stack(()), held.thread()
        with xlaprof.Trace("lost"):
            pass
        rec.stop()
        with xlaprof.record(sys.argv[1] + ".child"), xlaprof.Trace("in the child"):
            pass
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
with xlaprof.Trace("after"):
    pass
""",
        log,
    )
    parent, child = Recorded(log), Recorded(log.with_name("run.log.child"))
    assert parent.scopes == [("around the fork", 0), ("after", 0)]
    assert len(parent.of(Header)) == len(parent.of(End)) == 1
    assert parent.notes == ()
    assert child.scopes == [("in the child", 0)]
    assert child.of(Header)[0].pid != parent.of(Header)[0].pid


def test_forking_from_many_threads_while_recording_neither_hangs_nor_tears_the_log(log: Path) -> None:
    run(
        """
import os, sys, threading, xlaprof
xlaprof.start_recording(sys.argv[1])
def work(name):
    for i in range(10):
        with xlaprof.Trace(f"{name} {i}"):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
""",
        log,
    )
    recorded = Recorded(log)
    assert sorted(name for name, _ in recorded.scopes) == sorted(f"{n} {i}" for n in range(4) for i in range(10))
    assert recorded.notes == ()
    assert isinstance(recorded.events[-1], End)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_of_multiprocessing(tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import multiprocessing, sys, xlaprof
def work(folder):
    xlaprof.start_recording(folder + "/worker.log")
    with xlaprof.Trace("work"):
        pass
    raise LookupError("the worker's own")
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    xlaprof.start_recording(sys.argv[1] + "/main.log")
    worker = context.Process(target=work, args=(sys.argv[1],))
    worker.start()
    worker.join()
    assert worker.exitcode == 1, worker.exitcode
"""
    )
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, capture_output=True, timeout=120)
    main, worker = Recorded(tmp_path / "main.log"), Recorded(tmp_path / "worker.log")
    assert main.scopes == []
    assert isinstance(main.events[-1], End)
    assert worker.scopes == [("work", 0)]
    assert isinstance(worker.events[-1], End)
    if method != "spawn":  # there the exception has been dealt with before anything of ours runs
        assert worker.events[-1].error in ("LookupError", "")


def test_two_processes_do_not_record_into_one_file(log: Path) -> None:
    """The second one gets a file of its own, and so does each that comes later: nothing is overwritten."""
    with xlaprof.record(log), xlaprof.Trace("mine"):
        for number in (2, 3):
            other = log.with_name(f"run.{number}.log")
            done = run("import sys, xlaprof\nwith xlaprof.record(sys.argv[1]), xlaprof.Trace('its'): pass", log)
            assert done.stderr == f"xlaprof: another process is recording into {log}: this one records into {other}\n"
            assert Recorded(other).scopes == [("its", 0)]
    assert Recorded(log).scopes == [("mine", 0)]


# -- disks ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_reported_once_and_the_program_goes_on() -> None:
    done = run(
        """
import sys, xlaprof
with xlaprof.record(sys.argv[1]):
    for i in range(1000):
        with xlaprof.Trace("work"):
            pass
print("went on")
""",
        Path("/dev/full"),
    )
    assert done.stdout == "went on\n"
    first, last = done.stderr.splitlines()
    reason = os.strerror(errno.ENOSPC)
    assert first == f"xlaprof: cannot write /dev/full: {reason}; the program goes on"
    assert last.startswith("xlaprof: /dev/full lacks ")
    assert last.endswith(f" events that could not be written: {reason}")
    assert 1000 <= int(last.split()[3].replace(",", "")) <= 1010


SHEDS = """
import gc, os, resource, sys, xlaprof
sys.dont_write_bytecode = True  # it would be cut off at the limit, and read by all that follow
from xlaprof.recording import logfile, looks, recorder
gc.disable()  # or its pauses would be among the events to count
looks.EVERY_NS = 1 << 60  # and so would looks at the main thread, on a slow machine
logfile.BACKLOG = 20_000
logfile.RETRY_NS = 0
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))  # the disk, as far as this process can tell
xlaprof.start_recording(sys.argv[1])
def scopes(name, count):
    for i in range(count):
        with xlaprof.Trace(name):
            pass
    while recorder.active.queue:
        recorder.active._writer.wake()
scopes("before", 2000)
for i in range(20):
    scopes(f"name of the time without space {i}", 500)
while not recorder.active._file.lost_ever:
    recorder.active._writer.wake()
MAKE_ROOM
scopes("after", 100)
"""


def test_when_space_returns_the_log_says_what_it_lacks_and_is_whole_otherwise(log: Path) -> None:
    room = "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))"
    done = run(SHEDS.replace("MAKE_ROOM", room), log)
    assert "cannot write" in done.stderr
    recorded = Recorded(log)
    assert recorded.notes == ()
    lost = sum(dropped.count for dropped in recorded.of(Dropped) if dropped.why == "disk")
    assert recorded.of(Dropped)[0].detail == os.strerror(errno.EFBIG)
    reported = len(recorded.of(Scope))
    assert lost > 0
    assert reported + lost == 2000 + 20 * 500 + 100
    assert [name for name, _ in recorded.scopes][-100:] == ["after"] * 100
    # every id is defined: definitions are not shed
    assert {scope.name for scope in recorded.of(Scope)} <= set(recorded.texts)
    names = {"before", "after", *(f"name of the time without space {i}" for i in range(20))}
    assert names <= set(recorded.texts.values())


def test_a_disk_that_stays_full_leaves_a_readable_log(log: Path) -> None:
    done = run(SHEDS.replace("MAKE_ROOM", ""), log)
    recorded = Recorded(log)
    assert log.stat().st_size <= 30_000
    assert len(recorded.of(Scope)) > 0
    assert {name for name, _ in recorded.scopes} == {"before"}
    assert f"xlaprof: {log} lacks " in done.stderr
    # the last lines made room for what happened: no kill is blamed
    (dropped,) = recorded.of(Dropped)
    assert (dropped.why, dropped.detail) == ("disk", os.strerror(errno.EFBIG))
    assert len(recorded.of(Scope)) + dropped.count >= 2000 + 20 * 500 + 100
    assert len(recorded.of(End)) == 1
    run_info = xlaprof.report(log).run
    assert run_info.finished
    assert run_info.dropped == {"disk": dropped.count}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_small_disk_that_really_fills_up(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        filler = disk / "filler"
        done = run(
            f"""
import gc, os, sys, xlaprof
from xlaprof.recording import logfile, looks, recorder
gc.disable()
looks.EVERY_NS = 1 << 60
logfile.BACKLOG, logfile.RETRY_NS = 50_000, 0
def settle():
    while recorder.active.queue:
        recorder.active._writer.wake()
with xlaprof.record(sys.argv[1]):
    with xlaprof.Trace("first"): pass
    settle()
    with open({str(filler)!r}, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)): pass
        except OSError: pass
    for i in range(5000):
        with xlaprof.Trace("no room"): pass
    while not recorder.active._file.lost_ever:
        recorder.active._writer.wake()
    os.unlink({str(filler)!r})
    with xlaprof.Trace("room again"): pass
print("went on")
""",
            disk / "run.log",
        )
        recorded = Recorded(disk / "run.log")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert done.stdout == "went on\n"
    names = [name for name, _ in recorded.scopes]
    lost = sum(dropped.count for dropped in recorded.of(Dropped))
    assert names[0] == "first"
    assert names[-1] == "room again"
    assert lost > 0
    assert len(names) + lost == 5002
    assert recorded.notes == ()


LOSES_ITS_LOG = """
import gc, os, sys, xlaprof
from xlaprof.recording import looks, recorder
gc.disable()  # a long collection would be among the events, as would a look
looks.EVERY_NS = 1 << 60
with xlaprof.record(sys.argv[1]) as rec:
    for i in range(5):
        with xlaprof.Trace("before"): pass
    recorder.active.flush()
    LOSE
    for i in range(3):
        with xlaprof.Trace("before"): pass
        with xlaprof.Trace("after"): pass
print("went on")
"""


@pytest.mark.parametrize(
    ("lose", "why"),
    [("os.unlink(sys.argv[1])", "deleted"), ("os.truncate(sys.argv[1], 0)", "truncated")],
)
def test_a_log_that_is_lost_while_it_is_recorded_begins_again_and_says_what_it_lacks(
    log: Path, lose: str, why: str
) -> None:
    done = run(LOSES_ITS_LOG.replace("LOSE", lose), log)
    assert done.stdout == "went on\n"
    assert done.stderr == (f"xlaprof: {log} was {why} while it was recorded: it begins again, without what it held\n")
    recorded = Recorded(log)
    assert recorded.notes == ()
    assert isinstance(recorded.events[0], Header)
    assert isinstance(recorded.events[-1], End)
    assert [(dropped.why, dropped.count) for dropped in recorded.of(Dropped)] == [(why, 5)]
    # ids that the lost part defined are defined again: every scope has its name, and its line
    assert [name for name, _ in recorded.scopes] == ["before", "after"] * 3


def test_a_log_whose_folder_is_deleted_does_no_harm(log: Path) -> None:
    folder = log.parent / "gone"
    folder.mkdir()
    done = run(
        LOSES_ITS_LOG.replace("LOSE", "import shutil; shutil.rmtree(os.path.dirname(sys.argv[1]))"), folder / "l"
    )
    assert done.stdout == "went on\n"
    assert f"cannot write {folder / 'l'}: {os.strerror(errno.ENOENT)}; the program goes on" in done.stderr


def test_another_file_in_the_place_of_the_log_is_left_alone(log: Path) -> None:
    lose = "os.unlink(sys.argv[1]); open(sys.argv[1], 'w').write('mine')"
    done = run(LOSES_ITS_LOG.replace("LOSE", lose), log)
    assert f"cannot write {log}: {os.strerror(errno.EEXIST)}; the program goes on" in done.stderr
    assert log.read_text() == "mine"


def test_a_file_that_is_no_recording_is_not_replaced(log: Path) -> None:
    log.write_text("import torch\n")
    with pytest.raises(xlaprof.RecordingError, match="is not a recording"):
        xlaprof.start_recording(log)
    assert log.read_text() == "import torch\n"
    with xlaprof.record(log, force=True):
        pass
    with xlaprof.record(log):  # of its own it is
        pass
    log.write_bytes(b"")  # and an empty file (mktemp) has nothing to lose
    with xlaprof.record(log):
        pass
    assert isinstance(Recorded(log).events[0], Header)


def test_only_the_user_may_read_a_log(log: Path) -> None:
    with xlaprof.record(log):
        pass
    assert log.stat().st_mode & 0o777 == 0o600
    with xlaprof.record(log, mode=0o640):
        pass
    assert log.stat().st_mode & 0o777 == 0o640


def test_the_header_is_written_before_the_recording_returns(log: Path) -> None:
    """The writer's thread has not run yet: what is killed now leaves a log all the same."""
    done = run(
        """
import os, sys, xlaprof
from xlaprof.recording import writer
writer.Writer.start = lambda self: None
xlaprof.start_recording(sys.argv[1])
os._exit(0)
""",
        log,
    )
    assert done.stderr == ""
    assert isinstance(Recorded(log).events[0], Header)


def test_a_kill_while_the_header_is_made_leaves_what_was_there(log: Path) -> None:
    """Packages are asked for their versions, which takes a while: no file is open, or emptied, meanwhile."""
    with xlaprof.record(log), xlaprof.Trace("earlier"):
        pass
    run(
        """
import os, sys, xlaprof
from xlaprof.recording import recorder
recorder.header = lambda *_: os._exit(0)
xlaprof.start_recording(sys.argv[1])
""",
        log,
    )
    assert Recorded(log).scopes == [("earlier", 0)]


def test_a_program_without_stderr_survives_a_full_disk() -> None:
    run("import sys, xlaprof\nsys.stderr = None\nwith xlaprof.record(sys.argv[1]): pass", Path("/dev/full"))
