"""All of TorchTPU's batches: why they were cut, which were in its cache, and what the programs of the others cost."""

from __future__ import annotations

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.fold.torch_tpu import CutTally
from xlaprof.analysis.model import CutStat, Place, TorchTpuStat
from xlaprof.analysis.principles import HABIT, LISTED, MOST, SHOWN
from xlaprof.text.quantities import percent

#: TorchTPU 0.2's reasons, in words
_WHAT = {
    ".cpu()": "a tensor was brought to the host",
    "item()": "a value was read",
    "synchronize()": "the program waited for the device",
    "autograd_post_backward": "a backward pass had ended",
    "repeated_op_heuristic": "the same operations came again and again",
    "debug_mode": "every operation is run at once",
    "distributed_op": "processes exchange data",
    "compile_mode_execution": "a compiled function was called",
}
_READS = frozenset({".cpu()", "item()"})
_ADVICE = (
    (
        _READS,
        "because the host read a value. Keep values on the device (total += loss.detach()), and read them together, "
        "once in many steps",
    ),
    (
        frozenset({"synchronize()"}),
        "because the program waited for the device. Leave out torch.accelerator.synchronize() but for measuring",
    ),
    (
        frozenset({"debug_mode"}),
        "for debugging. Unset TORCH_TPU_LAUNCH_BLOCKING, and let torch.tpu defer and fuse: set_eager_mode("
        "DEFER_AND_FUSE)",
    ),
)


def stat(facts: Facts) -> TorchTpuStat:
    """What is said of all batches."""
    reasons = facts.run.torch_tpu.reasons
    batches = sum(one.count for one in reasons.values())
    most_first = sorted(reasons.items(), key=lambda item: -item[1].count)
    return TorchTpuStat(
        batches=batches,
        cached=sum(one.cached for one in reasons.values()),
        failed=sum(one.failed for one in reasons.values()),
        compile_s=sum(one.dur for one in reasons.values()) / 1e9,
        reasons=tuple(_cut(facts, reason, one) for reason, one in most_first[:LISTED]),
        text=_advice(reasons, batches),
    )


def _cut(facts: Facts, reason: str, tally: CutTally) -> CutStat:
    places: dict[tuple[str, int], tuple[Place, int]] = {}
    for stack, count in tally.places.items():
        place = facts.place(stack)
        if place.line:
            places[place.at] = place, places.get(place.at, (place, 0))[1] + count
    return CutStat(
        reason=reason,
        what=_WHAT.get(reason, ""),
        count=tally.count,
        cached=tally.cached,
        failed=tally.failed,
        compile_s=tally.dur / 1e9,
        places=tuple(place for place, _ in sorted(places.values(), key=lambda one: -one[1])[:SHOWN]),
    )


def _advice(reasons: dict[str, CutTally], batches: int) -> str:
    for those, why in _ADVICE:
        count = sum(one.count for reason, one in reasons.items() if reason in those)
        if count >= HABIT and count > MOST * batches:
            return f"{percent(count / batches)} of the batches were cut {why}."
    return ""
