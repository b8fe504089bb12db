"""The real readers: XProf's converter and TensorBoard's accumulator say what they understood of an export."""

from __future__ import annotations

import json
import statistics
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.events import Event
from xlaprof.export.formats import load
from xlaprof.export.written import Job, Written


class Tools:
    """What XProf makes of one profile."""

    def __init__(self, profile: Path) -> None:
        convert = pytest.importorskip(
            "xprof.convert.raw_to_tool_data", reason="xprof is not installed: NOTHING here was checked against XProf"
        )
        self.profile = str(profile)
        self._ask = convert.xspace_to_tool_data
        self.names: list[str] = convert.xspace_to_tool_names([self.profile])

    def ask(self, tool: str, **options: Any) -> Any:
        data, _ = self._ask([self.profile], tool, {"use_saved_result": False, **options})
        return json.loads(data)

    def overview(self) -> Overview:
        return Overview.of(self.ask("overview_page"), records(self.ask("framework_op_stats")[0]))

    def trace(self) -> list[dict[str, Any]]:
        """The events of the trace viewer, each with the names of its ``process`` and ``thread``."""
        options = {"resolution": 8000, "full_dma": True, "start_time_ms": 0, "end_time_ms": 0}
        events = self.ask("trace_viewer@", trace_viewer_options=options)["traceEvents"]
        names = {
            (e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("ph") == "M" and "name" in e["args"]
        }
        return [
            {**e, "process": names[e["pid"], None].split(" ", 1)[1], "thread": names.get((e["pid"], e["tid"]), "")}
            for e in events
            if e.get("ph") == "X"
        ]

    def details(self, event: dict[str, Any]) -> dict[str, Any]:
        """What the trace viewer shows when ``event`` is clicked."""
        options = {
            "event_name": event["name"],
            "start_time_ms": str(event["ts"] / 1e3),
            "duration_ms": str(event["dur"] / 1e3),
            "unique_id": str(event["args"]["uid"]),
        }
        (found,) = [
            e for e in self.ask("trace_viewer@", trace_viewer_options=options)["traceEvents"] if e.get("ph") == "X"
        ]
        args: dict[str, Any] = found["args"]
        return args


class Overview(msgspec.Struct, frozen=True):
    """The overview page, and the device's idle time, which only another page has: times in ms, ratios of 1."""

    idle: float
    steps: dict[int, float]  # number -> ms
    step_average: float
    step_idle: dict[int, float]  # number -> ms of the step that the device was idle, and not for input
    step_input: dict[int, float]  # number -> ms of the step that the idle device waited for input
    step_busy: dict[int, float]
    device: str
    says: str  # of input
    next: str
    lines: list[str]  # of xlaprof, in its order
    figures: dict[str, str]  # of the whole run

    @classmethod
    def of(cls, page: list[dict[str, Any]], operations: list[dict[str, Any]]) -> Overview:
        analysis, steps, environment = page[:3]
        rows = records(steps)
        times = {row["operation"]: row["total_self_time"] for row in operations if row["host_or_device"] == "Device"}
        messages = [row["message"] for row in records(page[6]) if row["message"].startswith("xlaprof ")]
        said = [(int(message.split(" ")[1].split("/")[0]), message) for message in messages]
        return cls(
            idle=times.get("IDLE", 0.0) / sum(times.values()) if times else 0.0,
            steps={int(row["stepnum"]): _step_ms(row["tooltip"]) for row in rows},
            step_average=float(steps["p"]["steptime_ms_average"]),
            step_idle={int(row["stepnum"]): row["tcIdleTimeMs"] for row in rows},
            step_input={int(row["stepnum"]): row["tcInfeedTimeMs"] for row in rows},
            step_busy={int(row["stepnum"]): row["tcComputeTimeMs"] for row in rows},
            device=environment["p"]["device_type"],
            says=steps["p"]["input_conclusion"],
            next=steps["p"]["summary_nextstep"],
            lines=[line.split(": ", 1)[1] for _, line in sorted(said)],
            figures=analysis["p"],
        )

    @property
    def step_median(self) -> float:
        return statistics.median(self.steps.values())


def records(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table of XProf's."""
    columns = [column["id"] for column in table["cols"]]
    return [dict(zip(columns, (cell.get("v") for cell in row["c"]), strict=True)) for row in table.get("rows", ())]


def _step_ms(tooltip: str) -> float:
    return float(tooltip.rsplit("Step time = ", 1)[1].removesuffix(" ms"))


def export(events: list[Event], out: Path, force: bool = False) -> Written:
    """Export ``events`` to the log directory ``out``."""
    return load("tensorboard")(Job(source=Path("run.log"), events=events, out=out, force=force))


def profile(written: Written) -> Tools:
    """XProf's view of an export."""
    return Tools(Path(written.files[0]))


def report(events: list[Event]) -> Report:
    """The report's view of the same events."""
    return Run().feed_all(events).report()


def curves(written: Written) -> dict[str, dict[int, float]]:
    """TensorBoard's view of an export: curve -> step -> value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own, on import
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        found = accumulator.EventAccumulator(written.files[1], size_guidance={"scalars": 0}).Reload()
        return {tag: {p.step: p.value for p in found.Scalars(tag)} for tag in found.Tags()["scalars"]}


def texts(written: Written) -> dict[str, str]:
    """TensorBoard's Text tab: tag -> Markdown, in the order in which they were written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own, on import
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        found = accumulator.EventAccumulator(written.files[1]).Reload()
        return {tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}
