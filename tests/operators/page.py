"""The page ``docs/operators.md``, made from the outcomes of a sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .exceptions import FALLBACK, REFUSED
from .sweep import BACKWARD, FIRST, FORWARD, IN_PLACE, OUT, Outcome

#: published or measured figures of others: forward, float32 (else int64, bool), first six samples of each entry
PEERS = (("torch_xla 2.9", 594, 393, 688), ("torchax (2026-10-26)", 596, None, 693))


def page(found: list[Outcome]) -> str:
    """The whole page, as Markdown."""
    by_entry: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in found:
        by_entry[outcome.entry].append(outcome)
    tried = {name: several for name, several in by_entry.items() if any(o.samples for o in several)}
    right = [name for name, several in tried.items() if not any(o.failures for o in several)]
    lowered = [name for name in right if not any(o.fallbacks for o in tried[name])]
    return "\n".join(
        [
            "# Operators",
            "",
            "<!-- Generated from a sweep by `make test-full` (`python -m tests.operators`): do not edit. -->",
            "",
            "PyTorch's own database of operator samples (OpInfo, `torch.testing._internal`), run on `xla` and on the",
            f"CPU: {_extent(found)}, forward, backward where the entry has a gradient, in place and `out=`.",
            "A result is right within the tolerances of `torch.testing` (and of the entry itself), or no further from",
            "float64 than a small multiple of the CPU's own distance, the rule of PyTorch's compiler tests.",
            "",
            f"- **{len(right)} of {len(tried)}** entries are right in everything tried ({_percent(right, tried)}).",
            f"- **{len(lowered)} of {len(tried)}** are right without any CPU fallback ({_percent(lowered, tried)}).",
            "",
            "## By dtype",
            "",
            *_table(
                ["dtype", "entries", "right", "without fallback", "samples", *(f"{v} tried" for v in VARIANTS)],
                _by_dtype(found),
            ),
            "",
            "## Beside others",
            "",
            f"Forward only, float32 (else int64, bool), the first {FIRST} samples of each entry. Figures of the others",
            "were taken by the same rule with their own versions of PyTorch.",
            "",
            *_table(["", "right", "right without fallback", "entries"], _beside(tried)),
            "",
            "## Exceptions",
            "",
            "All there are. The sweep fails for any other, and when one of these starts to work.",
            "",
            *_table(["entry", "on `xla`", "why"], _exceptions(by_entry)),
            "",
        ]
    )


VARIANTS = (FORWARD, BACKWARD, IN_PLACE, OUT)


def _extent(found: list[Outcome]) -> str:
    cut = [o.limit for o in found if o.limit is not None and o.samples == o.limit]
    if not cut:
        return "every sample of every entry in every dtype"
    whole = len(found) - len(cut)
    return (
        f"every sample of {whole:,} of the {len(found):,} pairs of entry and dtype, the first {max(cut)} of the others"
    )


def _by_dtype(found: list[Outcome]) -> Iterable[list[str]]:
    order = {"float32": 0, "float64": 1, "int64": 2, "bool": 3, "bfloat16": 4, "float16": 5}
    for dtype in sorted({o.dtype for o in found}, key=lambda d: (order.get(d, 9), d)):
        mine = [o for o in found if o.dtype == dtype and o.samples]
        right = [o for o in mine if not o.failures]
        if mine:
            yield [
                dtype,
                f"{len(mine)}",
                f"{len(right)}",
                f"{sum(not o.fallbacks for o in right)}",
                f"{sum(o.samples for o in mine):,}",
                *(f"{sum(o.tried.get(v, 0) for o in mine):,}" for v in VARIANTS),
            ]


def _beside(tried: dict[str, list[Outcome]]) -> Iterable[list[str]]:
    first = []
    for several in tried.values():
        by_dtype = {o.dtype: o for o in several}
        first.append(next((by_dtype[d] for d in ("float32", "int64", "bool") if d in by_dtype), several[0]))
    right = [o for o in first if o.first_right]
    yield ["xlaprof", f"{len(right)}", f"{sum(not o.first for o in right)}", f"{len(first)}"]
    for name, good, whole, of in PEERS:
        yield [name, f"{good}", "not counted" if whole is None else f"{whole}", f"{of}"]


def _exceptions(by_entry: dict[str, list[Outcome]]) -> Iterable[list[str]]:
    for name in sorted(set(FALLBACK) | set(REFUSED)):
        ran: set[str] = set()
        for outcome in by_entry.get(name, []):
            for operators in outcome.fallbacks.values():
                ran |= set(operators)
        how = "refused" if name in REFUSED else "CPU: " + ", ".join(f"`{op}`" for op in sorted(ran))
        yield [f"`{name}`", how, REFUSED.get(name) or FALLBACK[name]]


def _percent(part: list[str], whole: dict[str, list[Outcome]]) -> str:
    return f"{100 * len(part) / max(len(whole), 1):.1f} %"


def _table(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
