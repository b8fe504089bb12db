"""What an argument of an operation is that is a constant of the graph, and what can be in its place: one table."""

from __future__ import annotations

import re
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.reading import ELEMENTS, SCALAR
from xlaprof.analysis.evidence.reads import takes_element
from xlaprof.analysis.principles import HABIT
from xlaprof.analysis.recompiles.group import (
    Group,
    has_lengths,
    is_bound,
    is_moved,
    other_slices,
    same_number,
    versions,
    windows,
)
from xlaprof.analysis.recompiles.wording import Slice, expression, is_number, position_of, quoted, reads_there, writes
from xlaprof.text.quantities import plural
from xlaprof.vocabulary import fill


class _Argument(NamedTuple):
    """Arguments that mean the same, and how to do without: code has the fields of ``Slice``, arrays and position."""

    subject: str  # regular expression, of "index of aten::select"
    advice: str
    made: str = ""  # code that makes positions
    read: str = ""  # and reads there,
    written: str = ""  # writes a tensor, or
    filled: str = ""  # a number


_HELD = "are constants of the graph, and the elements of a tensor from the host are not"
_LARGEST = (
    "Take the largest size that can come each time{most}, and mask what lies beyond the one that is meant (torch.where "
    "on positions and a tensor of one element that holds it)"
)
_RANK = _Argument(
    r"k of aten::(topk|kthvalue)",
    _LARGEST + "; or, where only the k-th value counts, as for a threshold, sort all of it and read that value with "
    "index_select at a position that such a tensor holds.",
)
#: of a slice that begins where it did
_END = _Argument(
    r"end of aten::slice",
    _LARGEST + ": the end of a slice is a constant of the graph. Where no largest is known, take all of the dimension.",
)
_LENGTH = _Argument(
    r"(end|k|size|steps?|repeats|pad|output_size|kernel_size|split_sizes?|num_classes|length) of ",
    _LARGEST + ": it is the size of a result, which a graph has one of.",
)
#: the first that fits counts
_ARGUMENTS = (
    _Argument(
        r"start of aten::slice",
        "{verb} positions that a tensor holds: the bounds of a slice " + _HELD + ".",
        "positions = {arrays}.arange({start}, {end}).to({tensor}.device)  # made on the host\n",
        "{tensor}.index_select({axis}, positions)",
        "{tensor}.index_copy_({axis}, positions, {value})",
        "{tensor}.index_fill_({axis}, positions, {value})",
    ),
    _Argument(
        r"index of aten::select",
        "{verb} a position that a tensor of one element holds: an index that is a number, or a tensor of no "
        "dimensions, is a constant of the graph, and the elements of a tensor are not.",
        "position = {position}\n",
        "{tensor}.index_select({axis}, position).squeeze({axis})",
        "{tensor}.index_copy_({axis}, position, {value}.unsqueeze({axis}))",
        "{tensor}.index_fill_({axis}, position, {value})",
    ),
    _Argument(
        r"shifts of aten::roll",
        "Roll on the host, before the tensor is brought to the device; or gather at positions that a tensor holds: "
        "shifts " + _HELD + ".",
    ),
    _Argument(
        r"start of aten::arange",
        "Make the range on the host and bring it to the device, or add a tensor of one element to a range that begins "
        "at 0: its bounds " + _HELD + ".",
    ),
    _Argument(
        r"diagonal of aten::(tril|triu|diagonal)",
        "Compare positions with a tensor of one element, and choose with torch.where: the number of a diagonal is a "
        "constant of the graph.",
    ),
    _Argument(
        r"size of aten::(view|reshape|_unsafe_view|unflatten)",
        "Keep the shape constant: one graph has one. Where a size varies, pad the tensor before this line.",
    ),
    _RANK,
    _END,
    _LENGTH,
    _Argument(
        r"exponent of aten::pow",
        "Raise it to a power that a tensor of one element holds: an exponent that is a number is a constant of the "
        "graph, and the elements of a tensor are not.",
    ),
    _Argument("", "Keep the argument constant{few}."),
)
_FEW = (
    "; or compute the result for each of its few values in every step, and choose one with torch.where and a tensor of "
    "one element, torch.tensor([choice]) from the host (one of no dimensions is a constant again)"
)
_MANY = ", or give the operation a tensor of one element in its place, where it takes one"
_BOUNDS = " the start of a slice and its length are constants of the graph, and the elements of a tensor are not."
#: a part of a tensor is set to a number
_BLANKED = (
    "Write where a mask from the host holds, with masked_fill_ (or torch.where), in place of a slice:" + _BOUNDS,
    "inside = {arrays}.zeros({tensor}.shape[{axis}], dtype={arrays}.bool)  # on the host\n"
    "inside[{start}:{end}] = True\n"
    "{tensor}{last}.masked_fill_(inside.to({tensor}.device), {value})",
)
#: to another tensor
_WRITTEN = (
    "Write as many elements each time as the longest piece has, with index_copy_ at positions that a tensor from the "
    "host holds, the last one (and what belongs there) repeated where the piece is shorter:" + _BOUNDS,
    "positions = {arrays}.arange({start}, {start} + {most}).clamp(max={end} - 1)  # on the host\n"
    "{tensor}.index_copy_({axis}, positions.to({tensor}.device), padded)  # padded: its last element repeated, too",
)
#: and where it is read
_CUT = (
    "Read as many elements each time as the longest piece has, with index_select at positions that a tensor from the "
    "host holds, and mask what lies beyond the piece that is meant:" + _BOUNDS + " Or cut before the tensor is brought "
    "to the device, where sizes cost no graphs, and bring it to one size there.",
    "positions = {arrays}.arange({start}, {start} + {most})  # on the host\n"
    "piece = {tensor}.index_select({axis}, positions.clamp(max={tensor}.shape[{axis}] - 1).to({tensor}.device))\n"
    "inside = (positions < {end}).to({tensor}.device)  # to mask with",
)


def is_length(subject: str) -> bool:
    """Whether an argument, as "k of aten::topk", is the size of a result."""
    return next(one for one in _ARGUMENTS if re.match(one.subject, subject)) in (_RANK, _END, _LENGTH)


def advise(facts: Facts, group: Group) -> tuple[str, str]:
    """How to do without an argument that is a constant of the graph: the sentence, and code for the line."""
    change, code = group.first, group.place.code
    if all(takes_element(extra.record) for extra in group.extras):
        return fill(ELEMENTS, to_host=facts.words.to_host), ""
    of = position_of(code, change)
    if has_lengths(group) or (of is not None and is_number(of.value) and is_bound(change) and not is_moved(group)):
        return _of_many_lengths(facts, group, of)
    if is_moved(group):
        change = next(one.start for one in windows(group) if one.start is not None)
    one = next(one for one in _ARGUMENTS if re.match(one.subject, change.subject))
    use, verb = one.read, "Read with index_select at"
    if writes(code):
        read = change.subject.startswith("index") and reads_there(code)
        use, verb = one.written, f"Write with index_copy_{', and read with index_select,' * read} at"
    if of is not None and is_number(of.value):
        use, verb = one.filled, "Write with index_fill_ at"
    numbers = [int(value) for each in group.extras for value in (each.change.old, each.change.new) if value.isdecimal()]
    most = f" ({max(numbers)} so far)" if numbers else ""
    remedy = ""
    if of is not None and bool(of.value) is writes(code):
        arrays = facts.words.arrays
        reads = (stack for stack, op in facts.run.reads if facts.text(op) == SCALAR)
        # the line reads numbers from the device: its index is a tensor there
        is_read = change.subject.startswith("index") and any(facts.place(one).at == group.place.at for one in reads)
        position = f"{of.start}.reshape(1)" if is_read else f"{arrays}.tensor([{of.start}]).to({of.tensor}.device)"
        remedy = (one.made + use).format(arrays=arrays, position=position, **of._asdict())
    if change.subject.startswith("exponent of") and (exponent := expression(code, change)):
        remedy = f"exponent = {facts.words.arrays}.tensor([{exponent}]).to(device)  # in place of {exponent}"
    few = _FEW if len(versions(group)) <= HABIT else _MANY
    return _with_others(facts, group, one.advice.format(verb=verb, most=most, few=few)), remedy


def _of_many_lengths(facts: Facts, group: Group, of: Slice | None) -> tuple[str, str]:
    """Of a slice that has another length each time, and mostly another start."""
    writing = writes(group.place.code)
    text, code = _CUT if not writing else _BLANKED if of is not None and is_number(of.value) else _WRITTEN
    remedy = ""
    if of is not None and bool(of.value) is writing:
        lengths = [max(one.lengths) for one in windows(group) if one.lengths is not None]
        last = "" if of.axis == -1 else f".transpose({of.axis}, -1)"
        fields = {"most": max(lengths, default="LONGEST"), "arrays": facts.words.arrays, "last": last}
        remedy = code.format(**fields, **of._asdict())
    return _with_others(facts, group, text), remedy


def _with_others(facts: Facts, group: Group, advice: str) -> str:
    """The advice, and the other lines that are given the same number: each of them alone makes as many graphs. As do
    other slices that change in the same graphs."""
    if places := same_number(facts, group):
        lines = " and ".join(quoted(place) for place in places)
        more = plural(len(places), "more line")
        advice += (
            f" The same number is at {more}, {lines}: give all of them that tensor, with index_copy_ where a line "
            "writes."
        )
    if places := other_slices(facts, group):
        lines = " and ".join(quoted(place) for place in places)
        advice += (
            f" The same is due to the slice at {lines}, which changes in these graphs, too: either alone makes them."
        )
    return advice
