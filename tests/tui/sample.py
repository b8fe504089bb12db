"""An analysed run of 25 steps, as small as a Report can be, for tests of what is said about one."""

from __future__ import annotations

import msgspec

from xlaprof.analysis.model import Activity, IdleStat, Report, RunInfo, StepStats, TimeSplit


def report(activity: Activity | None = None, **run: object) -> Report:
    """A clean run; ``run`` are fields of its RunInfo."""
    info = RunInfo(
        path="run.log",
        host="ada",
        pid=4242,
        rank=0,
        world=1,
        argv=("train.py",),
        started_unix_s=0.0,
        wall_s=1.0,
        versions={},
        platform="cpu",
        device_kind="cpu",
        device_count=1,
        finished=False,
        error="",
        events=100,
        dropped={},
    )
    split = TimeSplit(
        total_s=0.25,
        device_busy_s=0.2,
        compile_s=0.0,
        tracing_s=0.2,
        transfer_wait_s=0.0,
        fallback_s=0.0,
        execute_s=0.05,
        data_wait_s=0.0,
        gc_s=0.0,
        scopes_s=0.0,
        other_s=0.0,
    )
    steps = StepStats("train", 25, 0.01, 0.01, 0.01, 0.01, 0.01, 24, (0.01,) * 25, split)
    return Report(
        run=msgspec.structs.replace(info, **run),
        steps=(steps,),
        counters={},
        seconds={},
        scopes=(),
        idle=IdleStat(0.25, 0.2, 0.05, 0.2, (("tracing", 0.05),), ()),
        findings=(),
        activity=activity or Activity("running", 24, 0.0),
    )
