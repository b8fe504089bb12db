"""Adding up runs: ranks of one training, segments of one recording."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, Self, TypeVar

from msgspec.structs import replace

from xlaprof.analysis.diagnosis import Part
from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import add_counts
from xlaprof.events import Counters
from xlaprof.vocabulary import STANDARD

from .totals import Totals
from .xla_metrics import counts, seconds


class _Tally(Protocol):
    def merge(self, other: Self, /) -> None: ...


_Key = TypeVar("_Key", bound=Hashable)
_T = TypeVar("_T", bound=_Tally)


def merge_into(mine: Totals, theirs: Totals) -> None:
    """Add the settled totals ``theirs``, which stay as they are; their ids become those of ``mine``."""
    ids = mine.names.adopt(theirs.names)
    text, stack, pair = ids.text, ids.stack, ids.pair
    # These read totals of both runs, so they come before anything is added.
    counted, timed = counts(mine), seconds(mine)
    add_counts(counted, counts(theirs))
    add_counts(timed, seconds(theirs))
    mine.counters, mine.baseline = Counters(0, counted, timed), None
    mine.merged_spans = mine.spans() + theirs.spans()
    _add_header(mine, theirs)
    _add(mine.steps, theirs.steps, text)
    _add(mine.scopes, {name: replace(one, stack=stack(one.stack)) for name, one in theirs.scopes.items()}, text)
    _add(mine.reads, theirs.reads, pair)
    for key, via in theirs.vias.items():
        mine.vias.setdefault(pair(key), text(via))
    _add(mine.sent, theirs.sent, lambda key: (stack(key[0]), key[1]))
    add_counts(mine.came_again, theirs.came_again, lambda key: (stack(key[0]), text(key[1])))
    add_counts(mine.read_runs, theirs.read_runs, stack)
    add_counts(mine.selections, theirs.selections, pair)
    add_counts(mine.given, theirs.given, stack)
    _add(mine.pauses, theirs.pauses, lambda key: (stack(key[0]), key[1]))
    mine.batches += (replace(one, stack=stack(one.stack), made=stack(one.made)) for one in theirs.batches)
    for looks in ("looks_before", "looks", "looks_drawing", "looks_waiting", "look_counts"):
        add_counts(getattr(mine, looks), getattr(theirs, looks), lambda key: (stack(key[0]), key[1]))
    add_counts(mine.looks_limited, theirs.looks_limited, stack)
    mine.compile_bill.merge(theirs.compile_bill)
    mine.recording |= {stack(place) for place in theirs.recording}
    mine.samples += theirs.samples
    for place, holder in theirs.holders.items():
        mine.holders.setdefault(stack(place), holder)
    _add(mine.fallbacks, theirs.fallbacks, pair)
    mine.alive.merge(theirs.alive, ids)
    _add(mine.sites, {place: replace(site, loop=stack(site.loop)) for place, site in theirs.sites.items()}, stack)
    _add(mine.executed_at, theirs.executed_at, stack)
    add_counts(mine.breaks, theirs.breaks, lambda key: (stack(key[0]), key[1], text(key[2])))
    mine.torch_compile.merge(theirs.torch_compile, ids)
    mine.cuda_graphs.merge(theirs.cuda_graphs, ids)
    mine.torch_tpu.merge(theirs.torch_tpu, ids)
    shift = _shift(mine)
    mine.jit.merge(theirs.jit, ids, shift)
    mine.frozen.merge(theirs.frozen, ids)
    _add_compiles(mine, theirs, ids, shift)
    mine.window.merge(theirs.window, ids)
    mine.merged_devices = mine.merged_devices + theirs.devices()


def _add_header(mine: Totals, theirs: Totals) -> None:
    if not mine.events:
        mine.end, mine.since_step = theirs.end, theirs.since_step
    elif mine.end is None or theirs.end is None:
        mine.end = None  # finished when all of them are
    elif theirs.end.error:
        mine.end = theirs.end
    mine.header = mine.header or theirs.header
    mine.device = mine.device or theirs.device
    mine.words = theirs.words if mine.words == STANDARD else mine.words
    if theirs.begin is not None:
        mine.begin = theirs.begin if mine.begin is None else min(mine.begin, theirs.begin)
        later = theirs if theirs.last >= mine.last else mine
        mine.now, mine.compiling = later.now, later.compiling
    mine.last = max(mine.last, theirs.last)
    mine.program = max(mine.program, theirs.program)
    mine.events += theirs.events
    add_counts(mine.dropped, theirs.dropped)
    mine.step_num = max(mine.step_num, theirs.step_num)


def _shift(mine: Totals) -> int:
    """What another recording's programs are counted on from: they are numbered in each process from 1."""
    return max([*mine.programs, *(record.program for record in mine.compiles)], default=0)


def _add_compiles(mine: Totals, theirs: Totals, ids: Ids, shift: int) -> None:
    for record in theirs.compiles:
        parts = tuple(_mapped(part, ids, shift) for part in record.parts)
        before = tuple(program + shift for program in record.before)
        change = parts[0].change if parts else None
        mapped = ids.mapped(record, stacks=("stack",))
        program = record.program + shift
        mine.compiles.append(replace(mapped, program=program, change=change, parts=parts, before=before))
    mine.cuts.extend((ids.stack(place), program + shift) for place, program in theirs.cuts)
    for program, moment in theirs.programs.items():
        mine.programs[program + shift] = moment
        mine.program_runs[program + shift] = theirs.program_runs[program]
        mine.program_busy[program + shift] = theirs.program_busy[program]
        mine.program_rhythms[program + shift] = theirs.program_rhythms[program]


def _mapped(part: Part, ids: Ids, shift: int) -> Part:
    change = ids.mapped(part.change, stacks=("stack", "expected", "made", "condition"))
    what, place, name = part.key
    return Part(
        replace(change, against=change.against and change.against + shift),
        (what, ids.stack(place), name),
        (part.old[0], ids.stack(part.old[1])),
        (part.new[0], ids.stack(part.new[1])),
        part.size,
        tuple(map(ids.stack, part.before)),
        tuple(map(ids.stack, part.now)),
    )


def _add(mine: dict[_Key, _T], theirs: dict[_Key, _T], key: Callable[[_Key], _Key]) -> None:
    for name, tally in theirs.items():
        ours = mine.get(key(name))
        if ours is None:
            ours = mine[key(name)] = type(tally)()
        ours.merge(tally)
