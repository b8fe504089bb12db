"""One sentence on why a graph was compiled again."""

from __future__ import annotations

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.recompiles.extra import Group, special_number
from xlaprof.analysis.recompiles.shapes import axes, dims
from xlaprof.analysis.recompiles.varying import varying
from xlaprof.analysis.recompiles.wording import expression, operator, quoted, tensor
from xlaprof.text.quantities import duration, plural, times

_MORE = "such change"
#: where Dynamo's graph served all sizes, so that Dynamo itself reports nothing
_FIXED = "Dynamo has one graph for all sizes, but a program of XLA's has fixed shapes."


def explanation(facts: Facts, group: Group, rhythm: str) -> str:
    """The sentence: the cause, and the compiles and seconds it took."""
    again = f"compiled again {times(len(group.extras))}, {duration(group.cost_s)} in all"
    if shared := sum(extra.share < 1 for extra in group.extras):
        combined = "all" if shared == len(group.extras) else f"{shared}"
        again += f" ({combined} of them for new combinations with other changes, which bear their part)"
    fixed = f" {_FIXED}" if group.first.role == "dynamic" else ""
    return f"{_capital(_what(facts, group, rhythm))}: {again}.{fixed}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.split(" ")[0] in _WORDS else text


_WORDS = frozenset(
    {"the", "an", "a", "another", "which", "gradients", "in", "sizes"}
)  # others are names of the program's


def _what(facts: Facts, group: Group, rhythm: str) -> str:
    change = group.first
    if group.sort in ("shape", "dtype"):
        return _shape(facts, group)
    if group.sort == "size":
        return f"the size of the {change.subject}, which values decide, changed {_went(group)}"
    if group.sort == "scalar":
        return _scalar(group)
    if group.sort == "argument":
        if change.role == "mode":
            return f"a module was switched between train() and eval(): {change.subject} went {_went(group)}"
        return f"{_argument(group)} changed {_went(group)}, and it is a constant of the graph"
    if group.sort == "operation":
        return _path(facts, group, rhythm)
    if group.sort == "evicted":
        return "the compiled graph had been dropped from a full cache and was needed again"
    if group.sort == "outputs":
        return _outputs(facts, group)
    if group.sort == "inputs" and change.old.endswith(" tensors"):
        return (
            f"the list that {operator(change)} is given has another length: {_went(group)[5:]}, so the graph has other "
            f"inputs and operations"
        )
    if group.sort == "inputs" and change.new == "held from before":
        return (
            f"{change.name or f'the {change.subject}'} was computed in the graph at first and is an input of it "
            f"since, as state kept from one step to the next is"
        )
    nouns = {
        "inputs": "the set of inputs of the graph",
        "aliasing": "which inputs of the graph are the same tensor",
        "sharding": "how a tensor lies over the devices",
    }
    detail = f" ({change.subject})" if change.subject else ""
    return f"{nouns.get(group.sort, f'the graph ({group.sort})')} changed {_went(group)}{detail}"


def _went(group: Group) -> str:
    kinds = len(dict.fromkeys((extra.change.old, extra.change.new) for extra in group.extras))
    more = f" (and {kinds - 1} more {_MORE}{'s' if kinds > 2 else ''})" if kinds > 1 else ""
    return f"from {group.first.old} to {group.first.new}{more}"


def _shape(facts: Facts, group: Group) -> str:
    change = group.first
    used = facts.names.place(change.stack)
    who = tensor(change, facts.names.place(change.made), used)
    op = operator(change)
    vary = varying(facts, group)
    if len(vary) > 1:
        which = ", ".join(f"dimension {one.axis} of {one.tensor}" for one in vary)
        return f"sizes vary together, and every combination is a graph of its own: {which}, at first {_went(group)}"
    reads = f", which {op} reads at line {used.line}," if op and used.line and used.line != group.place.line else ""
    if group.sort == "shape" and len(dims(change.old) or ()) != len(dims(change.new) or ()):
        noun = "rank (the number of dimensions) of the shape"
    elif group.sort == "shape" and axes(change):
        changed = axes(change)
        noun = f"shape (dimension{'s' * (len(changed) > 1)} {', '.join(map(str, changed))})"
    else:
        noun = change.what
    return f"the {noun} of {who}{reads} changed {_went(group)}"


def _scalar(group: Group) -> str:
    change = group.first
    name = _argument(group)
    if change.role == "shared":
        return (
            f"{name} went {_went(group)}: numbers that are equal are one input of the graph, and here two that had "
            f"been equal were not, or the other way round"
        )
    went = _went(group)
    if special_number(change.new):
        return f"{name} went {went}, and 0, 1 and -1 are special: exactly {change.new} is a constant of the graph"
    return f"{name} went {went}, and 0, 1 and -1 are special: {change.old} had been a constant of the graph"


def _argument(group: Group) -> str:
    change = group.first
    name = change.name or expression(group.place.code, change)
    subject = change.subject or "an argument"
    return f"{name} ({subject})" if name else subject


def _path(facts: Facts, group: Group, rhythm: str) -> str:
    change = group.first
    here = group.place
    condition, expected = facts.names.place(change.condition), facts.names.place(change.expected)
    often = f" {rhythm}" if rhythm.startswith(("every", "from")) else ""
    decides = f"; {quoted(condition)} decides" if condition.line else ""
    if change.name and not change.role:
        decides = f"; {change.subject} decides"
    if change.role == "grad":
        return (
            "gradients are written where .grad is None, in the first pass after they were cleared, and added to in "
            f"those that follow: another operation sequence ({change.new} came where {change.old} had been recorded)"
        )
    if change.role == "state":
        return f"the optimizer made its state here, once, which is another operation sequence than updating it{decides}"
    if change.role == "mode":
        return (
            f"a module was switched between train() and eval(), or its dropout to and from 0{decides}: "
            f"{change.new} came where {change.old} had been recorded, another operation sequence"
        )
    if change.role == "autocast":
        switched, what = ("on", change.new) if change.added > change.removed else ("off", change.old)
        return (
            f"autocast was switched {switched}{decides}: operations take inputs of another dtype, cast to it "
            f"({what}), which is another operation sequence"
        )
    if change.role == "barrier":
        return (
            f"a barrier{often} in the middle of the step cuts its graph in two{decides}, and each part is a graph "
            "of its own"
        )
    if change.role == "backward":
        return (
            "the backward pass took another path (requires_grad, frozen layers or the loss changed): operation "
            f"{change.new} came where {change.old} had been recorded"
        )
    if change.role == "loop" and condition.line:
        inner = facts.names.place(change.made)
        loop = f" ({inner.code.rstrip(':')})" if inner.code else ""
        if not change.old.endswith(("pass", "passes")):
            return (
                f"in each pass of the loop{loop} {quoted(condition)} decides what is done, and the graph holds what "
                f"was chosen in every pass: {change.new} came where {change.old} had been recorded, and each sequence "
                "of choices is another operation sequence"
            )
        return (
            f"in each pass of the loop{loop} {quoted(condition)} decides whether it does its work, and the graph holds "
            f"what was done: it went {_went(group)}, and each choice is another operation sequence"
        )
    if change.role == "loop":
        head = f" ({here.code.rstrip(':')})" if here.code else ""
        return (
            f"the loop{head}, all of which is in one graph, went {_went(group)}: another operation sequence for each "
            "number of passes"
        )
    count = change.added or change.removed
    if change.added and not change.removed and change.against:
        return (
            f"another path is taken{often}{decides}: {plural(count, 'operation')} from {change.new} on, recorded here, "
            "in this graph and not in the others"
        )
    if change.removed and not change.added and change.against:
        return (
            f"another path is taken{often}{decides}, without {plural(count, 'operation')} from {change.old} on, "
            "recorded here in other steps"
        )
    where = f" (line {expected.line})" if expected.line and expected.line != here.line else ""
    kinds = len(dict.fromkeys((extra.change.old, extra.change.new) for extra in group.extras))
    more = f" (and {kinds - 1} more such changes)" if kinds > 1 else ""
    return f"another path was taken{decides}: {change.new} came where {change.old}{where} had been recorded{more}"


def _outputs(facts: Facts, group: Group) -> str:
    change = group.first
    held = "now still held" in change.subject
    made = facts.names.place(change.made)
    what = f"a result of {operator(change)}" if operator(change) else "a tensor"
    from_line = f" made at line {made.line}" if made.line and made.line != group.place.line else ""
    if held and change.name:
        kind = f"the {change.role} " if change.role in ("list", "dict", "set") else ""
        return (
            f"{kind}{change.name} still holds {what}{from_line} at the barrier: one live output more ({_went(group)})"
        )
    state = "is still held" if held else "is no longer held"
    return f"the set of tensors alive at the barrier changed {_went(group)}: {what}{from_line} {state}"
