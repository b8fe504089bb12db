"""What every page of a report, and the screen, says of TorchTPU's batches in the same words."""

from __future__ import annotations

from xlaprof.analysis.model import CutStat, TorchTpuStat
from xlaprof.analysis.places import short
from xlaprof.text.quantities import duration
from xlaprof.text.strings import printable


def put_off(done: TorchTpuStat) -> str:
    """What became of the operations that TorchTPU put off."""
    found = [f"{done.cached:,} found in its cache", f"{done.made:,} compiled in {duration(done.compile_s)}"]
    found += [f"{done.failed:,} failed"] * bool(done.failed)
    noun = "batch" if done.batches == 1 else "batches"
    return f"{done.batches:,} {noun} of operations: {', '.join(found)}"


def reason(one: CutStat) -> str:
    """Why TorchTPU cut batches, in its own words."""
    return one.reason or "no reason given"


def cut(one: CutStat) -> str:
    """What a reason of TorchTPU to cut a batch means, and what it took."""
    facts = [one.what] * bool(one.what)
    made = one.count - one.cached - one.failed
    facts += [f"{made:,} compiled in {duration(one.compile_s)}"] * bool(made)
    facts += [f"{one.failed:,} failed"] * bool(one.failed)
    facts += [f"mostly behind {short(place)}" for place in one.places[:1]]
    return printable("; ".join(facts))
