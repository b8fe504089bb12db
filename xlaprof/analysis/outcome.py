"""What is said of a run without findings."""

from __future__ import annotations

from xlaprof.analysis.model import Report
from xlaprof.text.quantities import plural


def without_findings(report: Report) -> str:
    """A sentence: what was looked at, or, where nothing was seen, what was looked for."""
    steps = sum(stat.count for stat in report.steps), "step"
    if not report.observed:
        seen = " and ".join(plural(count, noun) for count, noun in (steps, (len(report.scopes), "scope")) if count)
        looked_for = "no graph of torch.compile, no program of JAX or on an xla device"
        way = (
            " A PyTorch program that asks torch.accelerator for its device computes on xla where PJRT_DEVICE=CPU "
            "is set."
        )
        asks = report.run.finished and not report.run.error and "torch" in report.run.versions
        return f"Nothing was observed{f' but {seen}' * bool(seen)}: {looked_for}.{way * asks}"
    graphs = report.compilation.count or report.torch_compile.graphs
    counts = ((graphs, "graph"), (report.jax.graphs, "JAX program"), steps)
    said = [plural(count, noun) for count, noun in counts if count]
    said += [f"TorchTPU's batches ({report.torch_tpu.batches:,})"] * bool(report.torch_tpu.batches)
    looked_at = ", ".join(said)
    return f"No findings: {looked_at}." if looked_at else "No findings."
