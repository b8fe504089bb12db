"""What an argument of an operation is that is a constant of the graph, and what can be in its place: one table."""

from __future__ import annotations

import re
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.reading import ELEMENTS, SCALAR
from xlaprof.analysis.evidence.reads import takes_element
from xlaprof.analysis.principles import HABIT
from xlaprof.analysis.recompiles.group import Group, same_number, versions, window_of
from xlaprof.analysis.recompiles.wording import expression, is_number, position_of, quoted, writes
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
    "Take the largest size each time{most}, and mask what lies beyond the one that is meant (torch.where on positions "
    "and a tensor of one element that holds it)"
)
_RANK = _Argument(
    r"k of aten::(topk|kthvalue)",
    _LARGEST + "; or, where only the k-th value counts, as for a threshold, sort all of it and read that value with "
    "index_select at a position that such a tensor holds.",
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
_CROP = (
    "Let the slice have one length: crop before the tensor is brought to the device, where sizes cost no graphs, and "
    "bring it to one size there; or mask what lies outside."
)


def is_length(subject: str) -> bool:
    """Whether an argument, as "k of aten::topk", is the size of a result."""
    return next(one for one in _ARGUMENTS if re.match(one.subject, subject)) in (_RANK, _LENGTH)


def advise(facts: Facts, group: Group) -> tuple[str, str]:
    """How to do without an argument that is a constant of the graph: the sentence, and code for the line."""
    change, bounds = group.first, window_of(group)
    if all(takes_element(extra.record) for extra in group.extras):
        return fill(ELEMENTS, to_host=facts.words.to_host), ""
    if bounds is not None and bounds.old != bounds.new:
        return _with_others(facts, group, _CROP), ""
    code = group.place.code
    of = position_of(code, change)
    one = next(one for one in _ARGUMENTS if re.match(one.subject, change.subject))
    use, verb = one.read, "Read with index_select at"
    if writes(code):
        use, verb = one.written, "Write with index_copy_ at"
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


def _with_others(facts: Facts, group: Group, advice: str) -> str:
    """The advice, and the other lines that are given the same number: each of them alone makes as many graphs."""
    places = same_number(facts, group)
    if not places:
        return advice
    lines = " and ".join(quoted(place) for place in places)
    more = plural(len(places), "more line")
    return (
        f"{advice} The same number is at {more}, {lines}: give all of them that tensor, with index_copy_ where a line "
        "writes."
    )
