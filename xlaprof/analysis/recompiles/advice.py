"""Advice on compiling a graph once: one sentence, and code where that says it better."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from xlaprof.analysis.evidence import padding
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Buckets, Place
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import NAMED, SHOWN
from xlaprof.analysis.recompiles import along, arguments, growth, wording
from xlaprof.analysis.recompiles.explanation import plain_advice
from xlaprof.analysis.recompiles.group import (
    Group,
    grows,
    is_irregular,
    of_batch,
    rhythms,
    sizes_by_program,
    sizes_elsewhere,
    special_too,
)
from xlaprof.analysis.recompiles.varying import Size, last_batch, made_by, varying
from xlaprof.analysis.recompiles.wording import quoted
from xlaprof.analysis.shapes import are_chosen, axes, dims, dtype, dtype_code
from xlaprof.analysis.statements import nodes
from xlaprof.analysis.timeline import host
from xlaprof.text.quantities import percent, plural
from xlaprof.text.strings import enumerated
from xlaprof.vocabulary import Vocabulary, fill

_NONE = re.compile(r"\bis (not )?None\b")
_EDGES = (
    " It looks like the edges of a graph: keep all of them, and give those that are left out the weight 0; or pad with "
    "edges of weight 0, or loops of a node that is left out."
)
_NODES = (
    " They are nodes and edges of graphs: pad with edges that are loops of a node which pads as well, and let that "
    "node belong to a graph of its own, behind those that count and left out of the result. Node 0 and graph 0 are "
    "real ones: pad {edges} with the number of the last node{owners}. So there is one node more than came."
)
_OWNERS = ", and {which} with the number of that graph"
_POSITIONS = (
    " {which} positions: repeat the last one, and the value that is written there, for 0 is a position as well; where "
    "values are added up, or results read, mask what the repeated ones add."
)
_LARGER = (
    " {so_far}, and larger ones may come: pad to the most that the data and the model (its positions) allow, where "
    "that is known, in place of {most}, and never beyond it."
)
_IGNORED = "  # a label that the loss ignores"
_MEANT = (
    " Where both are meant, leave them: in a longer run they pay, for padding costs device time in every step, and a "
    "second run takes their graphs from the compile cache."
)


class Advice(NamedTuple):
    """The sentence, the code, and of padding the sizes to choose from and those that the code pads to."""

    text: str
    remedy: str = ""
    buckets: tuple[Buckets, ...] = ()
    edges: tuple[int, ...] = ()


def advise(facts: Facts, group: Group) -> Advice:
    """How to avoid these compiles."""
    change, words, name = group.first, facts.words, _name(facts, group)
    if group.sort == "shape":
        carried = grows(group) and not made_by(facts, change).line  # what a collate function makes is chosen there
        return Advice(*growth.advise(facts, group)) if carried else _compiled_ahead(facts.words, _shape(facts, group))
    if group.sort == "scalar" and change.role != "shared":
        advice = _scalar(words, group)
        return advice._replace(text=" ".join((advice.text, *_others(facts, group), *_decided(facts, group))))
    if group.sort == "argument" and not change.role:
        text, remedy = arguments.advise(facts, group)
        return Advice(" ".join((text, *_decided(facts, group))), remedy)
    if group.sort == "operation" and change.name and not change.role:
        return Advice(
            f"Give {change.name} one value in all steps, or values for which the same operations are recorded (a small "
            "number instead of 0, a neutral tensor instead of None). Changed once and for good, it costs one graph."
        )
    decides = facts.place(change.condition).acting.code
    if group.sort == "operation" and not change.role and _NONE.search(decides):
        return Advice(
            f"Begin with what the other turns find there instead of None (zeros where values are added up), so that "
            f"the first turn at {quoted(facts.place(change.condition))} records the same."
        )
    text, remedy = plain_advice(facts, group)
    if group.sort == "dtype":
        remedy = f"{name} = {fill(words.convert_code, name=name, dtype=dtype_code(words, dtype(change.old)))}"
    return Advice(text, remedy)


def _scalar(words: Vocabulary, group: Group) -> Advice:
    change = group.first
    name = change.name or wording.expression(group.place.code, change)
    if name and wording.is_of_moved_number(group.place.code, change):
        return Advice(
            f"Bring {name} to the device as a tensor of one element: one of no dimensions is a number to the graph, "
            "and exactly 0, 1 and -1 are constants of it.",
            f"{name} = {name}.reshape(1)  # on the host, before it is brought to the device",
        )
    remedy = f"{name} = {fill(words.scalar_code, value=change.new)}" if name.isidentifier() and name != "lr" else ""
    if name == "lr":
        remedy = "# start the schedule a little above 0 and stay a little below 1"
        if words.scalars_as_inputs_code:
            remedy += f", or make every number an input:\n{words.scalars_as_inputs_code}"
    setting = f" ({words.scalars_as_inputs} makes every number an input)" if words.scalars_as_inputs else ""
    if wording.fills(change):
        return Advice(
            f"Expand a tensor of one element from the host to the size that is filled{setting}: such elements are no "
            "constants of the graph.",
            f"{words.arrays}.tensor([{name or 'value'}]).to(device).expand(size)  # in place of full(size, value)",
        )
    return Advice(
        f"Pass the number as a 1-element tensor on the device, {words.arrays}.tensor([value]) (one of no dimensions is "
        f"a number again), or keep it off exactly 0, 1 and -1{setting}.",
        remedy,
    )


def _others(facts: Facts, group: Group) -> Iterator[str]:
    """What other numbers of all these graphs are special, too: the same is due to them."""
    places = {place: changes[0].new for place, changes in special_too(facts, group).items()}
    if places:
        numbers = " and ".join(f"{value} at {quoted(place)}" for place, value in places.items())
        yield f"That alone is not enough: the same graphs have other such numbers ({numbers})."


def _decided(facts: Facts, group: Group) -> Iterator[str]:
    """What the number that changes decides on, too, in some of these graphs: by a condition that names it."""
    name = group.first.name
    parts = (part.change for extra in group.extras for part in extra.record.parts)
    places = dict.fromkeys(facts.place(one.condition) for one in parts if one.what == "operation" and one.condition)
    asking = [place for place in places if name in (one.id for one in nodes(place.acting.code, ast.Name))]
    if asking:
        yield (
            f"{' and '.join(map(quoted, asking))} looks at {name} as well, so that some of these graphs have other "
            f"operations: compute the same in every turn, and choose with {facts.words.arrays}.where."
        )


# -- shapes


def _shape(facts: Facts, group: Group) -> Advice:
    change = group.first
    old, new, changed = dims(change.old), dims(change.new), axes(change)
    if len(old) != len(new):
        return Advice(
            f"Give this input the same number of dimensions in every step ({len(old)} came first): unsqueeze it on the "
            "host before it is brought to the device."
        )
    if not changed:
        return Advice(plain_advice(facts, group)[0])
    words, vary = facts.words, varying(facts, group)
    if len(vary) > 1:
        return _with_needs(facts, group, _several(facts, group, vary))
    one = next((one for one in vary if one.axis == changed[0]), None)
    advice = _with_needs(facts, group, _one(facts, group, one, changed[0], (old, new)))
    maker = made_by(facts, change)
    if maker.line and advice.buckets and not group.place.library:
        advice = advice._replace(text=f"{advice.text} Do that where {maker.func} makes the batch ({short(maker)}).")
    elif "size = " in advice.remedy and _left_out(facts)[1] not in advice.remedy:
        advice = advice._replace(text=advice.text + _in_other_loops(facts, group))
    if one is None or not one.alike or not advice.buckets:
        return advice
    too = f" Pad with it what has the same size: {', '.join(alike.text for alike in one.alike)}."
    return advice._replace(
        text=advice.text + too * (_left_out(facts)[1] not in advice.remedy),
        remedy="\n".join((advice.remedy, *_alike(words, one))),
    )


def _in_other_loops(facts: Facts, group: Group) -> str:
    """Where else batches of these sizes are brought to the device, as in an evaluation."""
    brought = (facts.place(extra.change.made) for extra in group.extras if of_batch(extra.change))
    lines = list(dict.fromkeys(short(one) for one in brought if one.line and one.at != group.place.at))
    return f" The same is due to what {enumerated(lines, NAMED)} brings to the device." if lines else ""


def _with_needs(facts: Facts, group: Group, advice: Advice) -> Advice:
    """What else is due, where padding is what is advised, and not to leave a batch out."""
    if not advice.remedy or "size = " not in advice.remedy or _left_out(facts)[1] in advice.remedy:
        return advice
    where = []
    if padder := _padder(facts.place(group.first.made)):
        where = [f"Do that where {padder}() chooses its width: what it pads with, and on which side, stays as it is."]
    return advice._replace(text=" ".join((advice.text, *where, *along.needs(facts, group))))


def _left_out(facts: Facts) -> tuple[str, str]:
    """How to leave a short last batch out, in words and in code: as an option of a loader only where one was seen."""
    if any(cause == host.DATA for _, cause in facts.run.pauses):
        return facts.words.drop_last, facts.words.drop_last_code
    return "leave it out", "leave out what is left over"


def _several(facts: Facts, group: Group, vary: list[Size]) -> Advice:
    words, last = facts.words, last_batch(facts, group, vary)
    of_graph = any(alike.is_edges for one in vary for alike in one.together)
    if of_graph:  # with a node, and a graph, that pads
        vary = [one if any(alike.is_edges for alike in one.together) else _with_room(one) for one in vary]
    sizes = ", ".join(f"{' and '.join(alike.text for alike in one.together)} to {one.most}" for one in vary)
    about = _of_graph(vary) if of_graph else _positions([alike for one in vary for alike in one.together])
    if last is not None:
        drop, code = _left_out(facts)
        return Advice(
            f"{drop[:1].upper()}{drop[1:]}. Else pad all that is smaller in the last batch: {sizes}.{about}",
            f"# {code}",
        )
    runs = [facts.run.program_runs.get(extra.record.program, 0) for extra in group.extras]
    if 2 * sum(count <= 1 for count in runs) > len(runs):
        about += _LARGER.format(so_far="Of these sizes most came once", most="the largest that came")
    return Advice(
        f"Pad all of them to sizes of one fixed set (a few, chosen by the batch as a whole), or each to its largest: "
        f"{sizes}. Padding only one of them leaves a graph for each size of the others.{about}",
        "\n".join(line for one in vary for line in _padded_together(words, one, one if of_graph else None)),
    )


def _padded_together(words: Vocabulary, size: Size, graphs: Size | None) -> list[str]:
    """Code that pads what has one size, to the largest."""
    return [_pad(words, size, (size.most,), graphs), *_alike(words, size, graphs)]


def _with_room(size: Size) -> Size:
    """With room for one more than came."""
    return size._replace(sizes=(*size.sizes[:-1], size.most + 1))


def _owns(size: Size, among: Size) -> bool:
    """Whether it names the graph of each node: as long as what is known of the nodes, ``among`` what has one size."""
    of_nodes = any(one.axis == 0 < one.rank - 1 and not one.is_index for one in among.together)
    return size.is_index and size.rank == 1 and of_nodes and not any(one.is_edges for one in among.together)


def _of_graph(vary: list[Size]) -> str:
    """With what the edges of graphs are padded, and what names a graph for each node; other positions as ever."""
    every = [(one, alike) for one in vary for alike in one.together]
    edges = [alike.text for _, alike in every if alike.is_edges]
    owners = [alike.text for one, alike in every if _owns(alike, one)]
    others = [alike for _, alike in every if alike.is_index and not alike.is_edges and alike.text not in owners]
    too = _OWNERS.format(which=" and ".join(owners)) * bool(owners)
    return _NODES.format(edges=" and ".join(edges), owners=too) + _positions(others)


def _positions(sizes: list[Size]) -> str:
    """That what holds positions is not padded with 0."""
    names = list(dict.fromkeys(one.name or one.read for one in sizes if one.is_index))
    holds = f"{' and '.join(names)} {'hold' if len(names) > 1 else 'holds'}"
    return _POSITIONS.format(which=f"{holds[:1].upper()}{holds[1:]}" if " reads " in holds else holds) * bool(names)


def _one(
    facts: Facts, group: Group, size: Size | None, axis: int, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> Advice:
    """``size``: of the tensor that leads, where it is known; the code that pads the others follows. ``shapes``: the
    first, before and now."""
    old, new = shapes
    first, *others = (size for _, size in sizes_by_program(group, axis))
    sizes = [first, *others[::2]]  # and then each that was compiled for
    words, name, positions = facts.words, _name(facts, group), wording.is_index(group.first)
    is_edges = wording.is_edges(group.first)
    padded = Size(name, "", group.place, axis, len(old), tuple(sorted(set(sizes))), "", positions, is_edges)
    if size is not None and size.name:
        padded = size._replace(place=group.place)
    together = [] if size is None else [*size.together]
    of_graph = is_edges or any(one.is_edges for one in together)
    too = [one for one in together if one.is_index and one.name != padded.name]
    about = _POSITIONS.format(which="It holds") * positions + _positions(too)
    seen, busy, once = _ran(facts, group, axis)
    elsewhere = sizes_elsewhere(facts, group, axis)  # room is for them, too
    seen = {**dict.fromkeys(elsewhere, 1), **seen}
    parts = len({extra.record.stack for extra in group.extras})  # graphs of one step, each compiled for every size
    compiled = parts + len(group.extras)
    each = parts * group.cost_s / len(group.extras)
    found = padding.choices(seen, each, padding.unit_seconds(busy), compiled=-(-compiled // parts))
    best = padding.best(found)
    assert best is not None  # at least one size came
    distinct = len(set(sizes))
    more_often = group.first.against > 0 and seen.get(new[0], 0) > seen.get(old[0], 0)
    more_often = more_often or is_irregular(rhythms(facts, {extra.record.program for extra in group.extras}))
    if distinct <= 2 and axis == 0 and new[0] < old[0] and not more_often:
        drop, code = _left_out(facts)
        return Advice(
            f"Pad the last batch to {old[0]} or {drop}.{about}",
            f"# {code}, or\n{_pad(words, padded, (old[0],))}",
            found,
        )
    weight = f"\nweight = ({words.arrays}.arange(size) < count) * 1.0  # of each edge; count: before the padding"
    weight *= of_graph
    if distinct <= 2:
        meant = distinct > 1 and are_chosen(map(str, sizes))
        text = f"Pad dimension {axis} to {max(sizes)} in every step.{about}{_EDGES * of_graph}"
        text += _MEANT * meant
        return Advice(text, _pad(words, padded, (max(sizes),)) + weight, found)
    edges = ", ".join(map(str, best.edges[-SHOWN:]))
    saved = f"{plural(parts * best.compiles, 'compile')} instead of {compiled}"
    more = _EDGES * of_graph
    rises = distinct > 2 and sizes == sorted(sizes)
    if rises or (2 * once > distinct and sizes[0] < max(sizes)):  # there will be others
        so_far = "It only grew so far" if rises else "Of these sizes most came once"
        more += _LARGER.format(so_far=so_far, most=max(sizes))
    if not once and are_chosen(map(str, sizes)):
        more += " Where they are meant, have fewer of them; a second run takes their graphs from the compile cache."
    every = {*sizes, *elsewhere}
    return Advice(
        f"Dimension {axis} took {len(every)} sizes from {min(every)} to {max(every)}: pad it to {edges} ({saved}, "
        f"{percent(best.waste)} of the work on padding), or mask positions instead of selecting "
        f"them.{about}{more}",
        _pad(words, padded, best.edges) + weight,
        found,
        best.edges,
    )


def _ran(facts: Facts, group: Group, axis: int) -> tuple[Mapping[int, int], Mapping[int, tuple[int, float]], int]:
    """By size: how often graphs with it ran, each at least once; and the runs with their seconds on the device. And of
    how many sizes each graph ran once."""
    programs: dict[int, int] = {}
    for program, size in sizes_by_program(group, axis):
        programs.setdefault(program, size)
    seen: dict[int, int] = {}
    busy: dict[int, tuple[int, float]] = {}
    again: set[int] = set()
    for program, size in programs.items():
        runs, took = facts.run.program_runs.get(program, 0), facts.run.program_busy.get(program, 0)
        count, total = busy.get(size, (0, 0.0))
        seen[size] = seen.get(size, 0) + max(1, runs)
        busy[size] = count + runs, total + took / 1e9
        again |= {size} if runs > 1 else set()
    return seen, busy, len(seen) - len(again)


def _name(facts: Facts, group: Group) -> str:
    change = group.first
    return wording.variable(change, facts.place(change.made), facts.place(change.stack)) or "x"


def _pad(words: Vocabulary, size: Size, edges: tuple[int, ...], graphs: Size | None = None) -> str:
    """Code that pads a dimension of a tensor to the next of ``edges``. ``graphs``: what has one size, of graphs."""
    name = size.name or "x"
    to = f"{edges[0]}" if len(edges) == 1 else f"next(edge for edge in {edges} if edge >= {name}.shape[{size.axis}])"
    moved = wording.moved_as(size.place.acting.code, name)
    host = f"{name} = {moved}\n" if moved else ""
    of_loss = "" if size.is_index else "; leave the padding out of the loss"
    if padder := _padder(size.place):
        return f"size = {to}  # the width that {padder}() pads to, in place of the longest row's"
    return (
        f"# on the host, before the batch is brought to the device{of_loss}\n{host}size = {to}\n"
        f"{name} = {_padded(words, size._replace(name=name), graphs)}{_IGNORED * bool(size.ignored)}"
    )


def _compiled_ahead(words: Vocabulary, advice: Advice) -> Advice:
    """With code that compiles a step for the sizes that remain: else it waits for a compiler at each of them."""
    if len(advice.edges) < 2 or not words.warm_code:
        return advice
    warm = fill(words.warm_code, sizes=advice.edges)
    note = "# before the loop; example(size): the arguments of a step, on meta"
    return advice._replace(remedy="\n".join((advice.remedy, note, warm)))


def _padder(place: Place) -> str:
    """The function of the program's that pads already, as its name says: it knows with what, and on which side."""
    name = place.func.rpartition(".")[2]
    return name if "pad" in name.lower() and place.line else ""


def _alike(words: Vocabulary, size: Size, graphs: Size | None = None) -> list[str]:
    """Code that pads the other tensors of a batch to the same ``size``."""
    others = [] if _padder(size.place) else [one for one in size.alike if one.name not in ("", size.name)]
    return [f"{one.name} = {_padded(words, one, graphs)}{_IGNORED * bool(one.ignored)}" for one in others]


def _padded(words: Vocabulary, size: Size, graphs: Size | None) -> str:
    name, axis, value, why = size.name, size.axis, "", ""
    if graphs is not None and size.is_edges:
        value, why = ", value=nodes - 1", "  # nodes: how many there are with those that pad"
    elif graphs is not None and _owns(size, graphs):
        value, why = ", value=graphs", "  # graphs: how many count"
    elif size.is_index:  # the last of the positions again
        return f"{name}.index_select({axis}, {words.arrays}.arange(size).clamp(max={name}.shape[{axis}] - 1))"
    elif size.ignored:
        value = f", value={size.ignored}"
    return fill(words.pad_code, name=name, axis=axis, zeros="0, 0, " * (size.rank - 1 - axis), value=value) + why
