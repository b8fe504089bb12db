"""A TensorBoard log directory: what is made of a recording for it, and where it goes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from xlaprof.analysis.run import Run
from xlaprof.collection import no_collection
from xlaprof.errors import UserError
from xlaprof.events import Event, Header
from xlaprof.export import events_file, scalars, told
from xlaprof.export.blame import Blame, BlamedGaps
from xlaprof.export.device import DeviceLanes, device_type, gaps_plane, shown_as
from xlaprof.export.host import HOST_PLANE, UNKNOWN_UTILIZATION, HostLanes
from xlaprof.export.steps import AveragedSteps, main_steps
from xlaprof.export.timeline import Execution, StepSpan, Timeline
from xlaprof.export.training import programs_plane, trains
from xlaprof.export.written import Job, Written
from xlaprof.export.xplane import LONGEST_NS, Plane, write_space
from xlaprof.recording.logfile import private
from xlaprof.text.quantities import plural

_AT_ONCE = 16_384  # events
_LONGEST_NAME = 64  # of a host
_HOST, _ENVIRONMENT, _PROGRAMS, _FIRST_DEVICE = 1, 2, 3, 4  # ids of planes


@no_collection()
def write(job: Job) -> Written:
    """Write ``job`` as a new run of the log directory ``job.out``."""
    events = iter(job.events)
    first = next(events, None)
    # Refuse what can be refused before the long work.
    started_s = _started_s(first)
    run = _run_name(job.source, started_s)
    finals = (job.out / "plugins" / "profile" / run, job.out / run)
    for final in finals:
        if os.path.lexists(final) and not job.force:
            raise UserError(f"{final} already exists, will not overwrite without --force")

    timeline = Timeline()
    host = Plane(_HOST, HOST_PLANE, UNKNOWN_UTILIZATION)
    lanes = HostLanes(host, timeline.names)
    analysis = Run(long=True)
    analysis.inferred = []
    analysis.window.idle = BlamedGaps(uploads=timeline.uploads, of=analysis)
    for batch in _drawn(events if first is None else chain([first], events), timeline, lanes):
        analysis.feed_all(batch)
    if timeline.last - timeline.base >= LONGEST_NS:
        raise UserError(f"{job.source} spans {(timeline.last - timeline.base) / 86400e9:.0f} days: XPlane ends at 106")
    job.tell("analysing")
    report = analysis.report(str(job.source))
    settled = analysis.settled()
    assert isinstance(settled.window.idle, BlamedGaps)
    blame = Blame(settled, settled.window.idle)
    steps = timeline.steps(analysis.inferred)
    main = main_steps(steps)
    lanes.steps(steps, main)
    devices = {number: timeline.executions(number) for number in timeline.devices()}
    input = list(blame.inputs(e for e in devices.get(0, ()) if e.summed))
    lanes.input(input, main)
    lanes.finish()
    others = [_environment(timeline), *([programs_plane(_PROGRAMS)] if trains(settled, main) else [])]
    planes = chain([host], _devices(timeline, main, devices, blame, device_type(report.run), job.tell), others)
    del host, lanes  # each plane is let go of when it is written
    notes = _notes(timeline, steps=len(steps), devices=len(devices))

    name = re.sub(r"[^\w.-]", "_", timeline.header.host[:_LONGEST_NAME] if timeline.header else "") or "host"
    with _new_folders(job.out, finals, job.force) as (profile, curves):
        with open(profile / f"{name}.xplane.pb", "xb", opener=private) as file:
            job.tell("writing the threads of the host")
            said = told.lines(report, shown_as(report.run), notes)
            write_space(file, planes, name, base_ns=timeline.base, warnings=said)
        job.tell(f"writing the curves of {plural(len(steps), 'step')}")
        points = scalars.points(timeline, steps, list(devices.values()), [one[:2] for one in input])
        curve_file = curves / f"events.out.tfevents.{started_s or 0}.{name}"
        span = (timeline.base, max(timeline.last, timeline.base))
        drawn = events_file.write(curve_file, points, told.pages(report), timeline.unix_ns, *span)
    job.tell("")
    files = (finals[0] / f"{name}.xplane.pb", finals[1] / curve_file.name)
    return Written(
        format="tensorboard",
        path=str(job.out),
        files=tuple(map(str, files)),
        events=timeline.count,
        steps=len(steps),
        executions=sum(map(len, devices.values())),
        hint=f"tensorboard --logdir {shlex.quote(str(job.out))} --host 127.0.0.1",
        notes=notes if drawn else (*notes, "the log has nothing to draw curves of"),
    )


def _drawn(events: Iterator[Event], timeline: Timeline, lanes: HostLanes) -> Iterator[list[Event]]:
    """``events`` but those that are left out, some at a time, drawn on their way."""
    while batch := list(islice(events, _AT_ONCE)):
        kept, scopes, others = timeline.feed_all(batch)
        for event in others:
            lanes.feed(event)
        lanes.feed_scopes(scopes)
        yield kept


def _devices(
    timeline: Timeline,
    main: list[StepSpan],
    devices: dict[int, list[Execution]],
    blame: Blame,
    kind: str,
    tell: Callable[[str], None],
) -> Iterator[Plane]:
    for i, (number, executions) in enumerate(devices.items()):
        tell(f"writing {plural(len(executions), 'execution')} of device {number}")
        steps = AveragedSteps(main, executions)
        lanes = DeviceLanes(_FIRST_DEVICE + 2 * i, number, kind, steps, timeline.names)
        for execution in executions:
            lanes.draw(execution)
        plane = lanes.plane
        del lanes
        yield plane
        del plane
        yield gaps_plane(_FIRST_DEVICE + 2 * i + 1, number, executions, blame, timeline.names)


def _environment(timeline: Timeline) -> Plane:
    """When the profile was taken; the events of the other planes are relative to it."""
    start = timeline.unix_ns(timeline.base)
    stop = timeline.unix_ns(max(timeline.last, timeline.base))
    return Plane(_ENVIRONMENT, "Task Environment", {"profile_start_time": start, "profile_stop_time": stop})


def _notes(timeline: Timeline, steps: int, devices: int) -> tuple[str, ...]:
    notes = (
        (timeline.others, "the log holds more than one recording: only the first was exported"),
        (timeline.implausible, f"{plural(timeline.implausible, 'event')} left out: impossible times"),
        (timeline.dropped, f"{plural(timeline.dropped, 'event')} missing: the recording dropped them"),
        (not devices, "the log has no execution on a device: XProf has no idle time to show"),
        (not steps, "the log has no steps: use xlaprof.StepTrace, or a barrier per step"),
    )
    return tuple(note for holds, note in notes if holds)


def _started_s(first: Event | None) -> int | None:
    """The unix time (s) at which the recording began, if the log has it."""
    return first.unix_ns // 10**9 if isinstance(first, Header) and first.unix_ns >= 0 else None


def _run_name(source: Path, started_s: int | None) -> str:
    """The name of the log and the time at which it began: the same for each export of a log.

    Refused where it would be no folder of its own: --force replaces what has this name.
    """
    stem = re.sub(r"[^\w.-]", "_", source.name.removesuffix(".gz").removesuffix(".log")) or "run"
    if not stem.strip("."):
        raise UserError(f"{source} gives the run no name: '{stem}' would be another folder; rename the log")
    # never the log's name alone, which may be that of a folder which is no export
    when = "undated" if started_s is None else time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(started_s))
    return f"{stem}-{when}"


@contextmanager
def _new_folders(out: Path, finals: tuple[Path, Path], force: bool) -> Iterator[tuple[Path, Path]]:
    """Two folders to fill, for the profile and the curves, moved to ``finals`` when all is written.

    The folder of an earlier export is replaced as a whole: XProf keeps what it computed from a profile beside it.
    """
    partial = out / f".{finals[1].name}.partial-{os.getpid()}"
    try:
        parts = (partial / "profile", partial / "curves")
        for part in parts:
            part.mkdir(parents=True)
            part.chmod(0o700)
        yield parts
        for part, final in zip(parts, finals, strict=True):
            if force and os.path.lexists(final):
                shutil.rmtree(final)
            final.parent.mkdir(parents=True, exist_ok=True)
            part.rename(final)
    except OSError as e:
        raise UserError(f"cannot write to {out}: {e.strerror or e} ({e.filename or partial})") from e
    finally:
        shutil.rmtree(partial, ignore_errors=True)
