"""Why a graph was compiled again, in a sentence, and what to do: a table of the sorts of changes."""

from __future__ import annotations

import ast
import re
from itertools import takewhile
from typing import NamedTuple

from xlaprof.analysis.evidence.dynamic_size_ops import INSTEAD, OTHERWISE
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.loop_entry import behind_again, each_loop, entered, recorded_again
from xlaprof.analysis.evidence.looping import is_over_layers
from xlaprof.analysis.places import is_head, named, short
from xlaprof.analysis.principles import HABIT
from xlaprof.analysis.recompiles.group import (
    Group,
    comes_again,
    grows,
    is_aside,
    is_carried,
    is_chosen,
    sizes,
    special_number,
    windows,
)
from xlaprof.analysis.recompiles.varying import last_batch, made_by, varying
from xlaprof.analysis.recompiles.wording import expression, operator, quoted, tensor
from xlaprof.analysis.shapes import axes, dims, dtype
from xlaprof.analysis.statements import nodes
from xlaprof.text.quantities import duration, plural, times


class _Text(NamedTuple):
    """What changed, and how to avoid it, with the fields of :func:`_fields`."""

    cause: str
    advice: str
    remedy: str = ""


_MODE = (
    "Call model.train() after the evaluation and model.eval() before it, each before the next step is recorded, and "
    "give the evaluation a barrier of its own."
)
_PATH = "Take the same path in every step ({words.arrays}.where instead of {instead_of})."
_ALWAYS = (
    "Take the same path in every step: do this always{in_place}, and mask it where it must not count "
    "({words.arrays}.where, a factor of 0 or 1 in a tensor of one element); what is only shown, as a copy for a log, "
    "needs no mask."
)
_WARM_UP = "Make the tensors that a step starts from the same in every step, for instance by one warm-up step."

_OTHER = _Text("the graph ({sort}) changed {went}{of}", _WARM_UP)

#: by sort of change, and role of the operation where that says more
_TEXTS = {
    "shape": _Text("{shape}", "Give this input the same shape in every step."),
    "dtype": _Text("{shape}", "Convert the input to one dtype before the step ({dtype} came first)."),
    "size": _Text("the size of the {subject}, which values decide, changed {went}", "{instead}."),
    "scalar": _Text("{argument} went {went}, and 0, 1 and -1 are special: exactly {special} of the graph", ""),
    "scalar plain": _Text("{argument} went {went}, and it is a constant of the graph", ""),
    "scalar shared": _Text(
        "{argument} went {went}: numbers that are equal are one input of the graph, and here two that had been equal "
        "were not, or the other way round",
        "Pass the two numbers as 1-element tensors on the device, so that their values do not matter.",
    ),
    "scalar step": _Text(
        "{argument} went {went}: an optimizer's number for some of its parameters, and no more the same as for others, "
        "as where one has had no gradient in some steps and has made fewer; numbers that are equal are one input of "
        "the graph, and these are two",
        "Make the optimizer with capturable=True, where it has that (Adam and its kin): what it computes from the "
        "number of steps is no number of Python's then. Or let each of its parameters have a gradient in every step, "
        "of zeros where a loss does not reach it.",
        "optimizer = torch.optim.Adam(parameters, capturable=True)",
    ),
    "argument": _Text(
        "{argument} changed {went}{bounds}, and it is a constant of the graph",
        "Keep the argument constant, or compute with a tensor on the device instead of a Python number.",
    ),
    "argument mode": _Text("a module was switched between train() and eval(): {subject} went {went}", _MODE),
    "operation": _Text("another path was taken{decides}: {new} came where {old}{where} had been recorded{more}", _PATH),
    "operation more": _Text(
        "another path is taken{often}{decides}: {count} from {new} on, recorded here, in this graph and not in the "
        "others",
        _ALWAYS,
    ),
    "operation less": _Text(
        "another path is taken{often}{decides}, without {count} from {old} on, recorded here in other steps", _ALWAYS
    ),
    "operation mode": _Text(
        "a module was switched between train() and eval(), or its dropout to and from 0{decides}: {new} came where "
        "{old} had been recorded, another operation sequence",
        _MODE,
    ),
    "operation autocast": _Text(
        "autocast was switched {switched}{decides}: operations take inputs of another dtype, cast to it ({cast}), "
        "which is another operation sequence",
        "Run every step under the same autocast (dtype and enabled=), from the first one on; where two precisions are "
        "meant, two graphs are what they cost: give each its own barrier.",
    ),
    "operation barrier": _Text(
        "a barrier{often} in the middle of the step cuts its graph in two{decides}, and each part is a graph of its "
        "own",
        "Remove this barrier, or let every step have it: one barrier a step{at}.",
    ),
    "operation entry": _Text(
        "the first graph of a loop also holds what this line records before the loop{anew}, and the others do not",
        "Call {words.barrier} directly before {entered}: all that is recorded before it is a small graph of its own "
        "then.",
    ),
    "operation turn": _Text(
        "each turn of a loop leaves what this line records, behind its barrier, to the graph of the next one, and the "
        "first turn has what precedes the loop in its place",
        "Call {words.barrier} as the first thing of each turn: what is recorded between two barriers is a small graph "
        "of its own then, and all turns have one graph.",
    ),
    "operation entry head": _Text(
        "the first graph of a loop also holds what its head records as it begins, which takes each element out of "
        "{over}, and the others do not",
        "Take the elements out before the loop, as a list, and call {words.barrier} between that and the loop: it is a "
        "small graph of its own then.",
        "elements = list({over})\n{words.barrier_code}\n{over_elements}",
    ),
    "operation carried": _Text(
        "what this line computes{often}{decides_on} begins the graph of the step that follows, {count} more than in a "
        "step before which nothing was computed so",
        "Call {words.barrier} after it: what it records is a small graph of its own then, and the steps have one "
        "graph{each_time}.",
    ),
    "operation aside": _Text(
        "what is done where {condition} holds belongs to the graph of the step{often}, and nothing else in it differs",
        "Call {words.barrier} before the if, in every step, and once more after what it does: the steps have one graph "
        "then, and this is a small one of its own.",
    ),
    "operation again": _Text(
        "this line is reached once more each time, {each} more ({operations}): what calls it was registered or wrapped "
        "again, and what had been there before still runs",
        "Register it once, before the loop; or undo it, as with handle.remove() of what register_forward_hook returns, "
        "before it is registered again.",
    ),
    "operation pending": _Text(
        "what a loop records by this line is still pending when the next step is recorded, for no barrier ended it: "
        "the graph of that step holds it, and what is computed of it afterwards, {count} more than in the other steps",
        "Call {words.barrier} at the end of {turn}, and of what is computed of it after that loop: what is pending is "
        "a small graph of its own then, and the steps have one graph.{inside}",
    ),
    "operation grad": _Text(
        "gradients are written where .grad is None, in the first pass after they were cleared, and added to in those "
        "that follow: another operation sequence ({new} came where {old} had been recorded)",
        "Move the barrier{at} so that every graph holds the same work, once per optimizer step.",
    ),
    "operation backward": _Text(
        "the backward pass took another path (requires_grad, frozen layers or the loss changed): operation {new} came "
        "where {old} had been recorded",
        "Let the same parameters require gradients in all steps, and build the loss from the same terms.",
    ),
    "operation loop": _Text(
        "the loop{head}, all of which is in one graph, went {went}: another operation sequence for each number of "
        "passes",
        "Let the loop have the same number of passes before each barrier{at}: leave out or pad what is left over, or "
        "run the most passes{most} each time and mask those that are too many: x = {words.arrays}.where(i < count, "
        "next, x), where count is a tensor of one element, {words.arrays}.tensor([n]) from the host. Where each pass "
        "has its own backward pass, or none, a barrier at its end serves, too.",
    ),
    "operation loop grows": _Text(
        "the loop{head}, all of which is in one graph, has one pass more each time ({old}, then {new}, and so on), and "
        "each number of passes is another operation sequence, without end{grown}",
        "End every pass with a barrier, so that one graph serves all passes; or keep the result of the passes that "
        "were there before, and add only the new one's.",
    ),
    "operation loop if": _Text(
        "in each pass of the loop{loop} {condition} decides {whether}, and each {choice} is another operation sequence",
        "Do the work of every pass and mask its result ({words.arrays}.where, a factor of 0 or 1 in a tensor of one "
        "element from the host: 0 and 1 in one of no dimensions are constants again) instead of the if of {condition}.",
        "choice = {words.arrays}.tensor([choose]{words.on_device})  # one element\n"
        "value = {words.arrays}.where(choice, one, other)",
    ),
    "evicted": _Text(
        "the compiled graph had been dropped from a full cache and was needed again",
        "Raise the limit of the compile cache, or let fewer different graphs arise.",
    ),
    "outputs": _Text(
        "{outputs}",
        "Let go of results of earlier steps before the barrier, or keep the same ones alive at every barrier: keep the "
        "value after the barrier, when it is computed, or copy it to the host.",
    ),
    "inputs": _Text("the set of inputs of the graph changed {went}{of}", _WARM_UP),
    "inputs list": _Text(
        "the list that {operator} is given has another length: {old} to {new}{more}, so the graph has other inputs and "
        "operations",
        "Keep one tensor of fixed length on the device and write into it, or keep a running sum, instead of a list "
        "that grows.",
        "buffer = {words.arrays}.zeros(LENGTH, device=device)  # once\n"
        "buffer = {words.arrays}.roll(buffer, -1)\nbuffer[-1] = value",
    ),
    "inputs chosen": _Text(
        "the host chooses which tensors {operator} is given, and each choice is another graph: of which of them are "
        "one tensor, which this graph makes and which it finds",
        "Keep the rows in one tensor on the device: write with index_copy_, and read with index_select, at positions "
        "that a tensor from the host holds.",
        "rows = {words.arrays}.zeros(CAPACITY, WIDTH, device=device)  # once\n"
        "rows.index_copy_(0, positions, new)\nbatch = rows.index_select(0, chosen)  # both from the host",
    ),
    "inputs held": _Text(
        "{held} was computed in the graph at first and is an input of it since, as state kept from one step to the "
        "next is",
        _WARM_UP,
    ),
    "aliasing": _Text("which inputs of the graph are the same tensor changed {went}{of}", _WARM_UP),
    "aliasing entry": _Text(
        "in the first graph of the loop{over_turns} {held} is one tensor with what it was copied from, for the copy, "
        "made before the loop, is still pending; since then it is a tensor of its own",
        "Call {words.barrier} before the loop{over_turns}, once all that it begins with is made: the step is then "
        "compiled once.",
    ),
    "sharding": _Text(
        "how a tensor lies over the devices changed {went}{of}",
        "Call {words.shard} on the tensor once, before the first step, and give every batch the same sharding.",
    ),
}
#: words of the sentences that may come first; others are names of the program's
_FIRST = frozenset({"the", "each", "this", "an", "a", "another", "which", "gradients", "in", "sizes", "how", "what"})


def explanation(facts: Facts, group: Group, rhythm: str) -> str:
    """The sentence: the cause, and the compiles and seconds it took."""
    again = f"compiled again {times(len(group.extras))}, {duration(group.cost_s)} in all"
    notes = [
        f"{'all' if many == len(group.extras) else many} of them for {what}"
        for many, what in (
            (sum(one.either for one in group.extras), "new combinations with other changes"),
            (sum(one.share < 1 for one in group.extras), "several changes at once, which bear their part"),
        )
        if many
    ]
    again += f" ({', '.join(notes)})" if notes else ""
    # Dynamo's graph served all sizes, so that Dynamo itself reports nothing
    dynamic = group.first.role == "dynamic"
    fixed = " Dynamo has one graph for all sizes, but a program of XLA's has fixed shapes." if dynamic else ""
    what = _text(facts, group).cause.format_map({**_fields(facts, group, rhythm), "sort": group.sort})
    what = what[:1].upper() + what[1:] if what.split(" ")[0] in _FIRST else what
    return f"{what}: {again}.{fixed}"


def plain_advice(facts: Facts, group: Group) -> tuple[str, str]:
    """The advice of the table, and its code."""
    text, fields = _text(facts, group), _fields(facts, group)
    return text.advice.format_map(fields), text.remedy.format_map(fields)


def _text(facts: Facts, group: Group) -> _Text:
    change, sort = group.first, group.sort
    variant = change.role
    if sort == "inputs":
        chosen = is_chosen(change) and len(group.extras) >= HABIT
        held = "chosen" if chosen else "held" if change.new == "held from before" else ""
        variant = "list" if change.old.endswith(" tensors") else held
    elif sort == "scalar" and variant == "shared" and ".step(" in group.place.acting.code:
        variant = "step"
    elif sort == "scalar" and not variant and not _special(group):
        variant = "plain"
    elif variant == "loop" and facts.place(change.condition).line:
        variant = "loop if"
    elif variant == "loop" and _grows(group):
        variant = "loop grows"
    elif variant == "entry" and is_head(group.place):
        variant = "entry head"
    elif is_carried(facts, group):
        variant = "carried"
    elif comes_again(group):
        variant = "again"
    elif is_aside(facts, group):
        variant = "aside"
    elif f"{sort} {variant}" not in _TEXTS and change.against and (not change.added or not change.removed):
        variant = "more" if change.added else "less" if change.removed else ""
    return _TEXTS.get(f"{sort} {variant}") or _TEXTS.get(sort, _OTHER)


def _grows(group: Group) -> bool:
    """Whether a loop had one pass more at each change, several times in a row."""
    went = [(extra.change.old.partition(" ")[0], extra.change.new.partition(" ")[0]) for extra in group.extras]
    passes = [(int(old), int(new)) for old, new in went if old.isdecimal() and new.isdecimal()]
    return len(passes) >= HABIT and all(new == old + 1 == passes[0][1] + i for i, (old, new) in enumerate(passes))


def _bounds(group: Group) -> str:
    """The clause on the other bound of a slice: its end, where that changes with the start."""
    found = windows(group)
    if not found:
        return ""
    window, first = found[0], group.first
    bounds = (("start", window.start), ("end", window.end))
    other = next(((name, one) for name, one in bounds if one is not None and one.subject != first.subject), None)
    if other is None:
        others = [one.subject for each in found for one in (each.start, each.end) if one is not None]
        also = next((one.partition(" ")[0] for one in others if one != first.subject), "")
        return f", and its {also} in other graphs" if also else ""
    name, one = other
    called, lengths = expression(group.place.code, one), window.lengths
    length = f", so that a slice of {lengths[0]} became one of {lengths[1]}" if lengths and len({*lengths}) > 1 else ""
    return f", and its {name}{f', {called},' if called else ''} from {one.old} to {one.new}{length}"


def _special(group: Group) -> list[str]:
    """The numbers among those of a group that are constants of a graph wherever they stand."""
    changes = (extra.change for extra in group.alike if extra.change.what == group.sort)
    texts = (text for one in changes for text in (one.old, one.new))
    return list(dict.fromkeys(text for text in texts if special_number(text)))


def _inside(facts: Facts, group: Group) -> str:
    """What to do where turns of a loop that this line calls are one graph as well, wherever that is cut."""
    found = []
    for record in facts.run.compiles:
        site = facts.run.sites.get(record.stack)
        frames = facts.names.frames(site.loop) if site is not None else ()
        if site is None or not any(one.at == group.place.at for one in frames):
            continue
        inner = {(one.file, one.acting.func) for one in takewhile(lambda one: one.at != group.place.at, frames)}
        for loop, turns in facts.names.turns(site.loop, site.turns):
            layers = is_over_layers(loop) and not site.loop_shared
            if turns >= HABIT and not layers and (loop.file, loop.acting.func) in inner:
                found.append((record.ops, turns, loop, record))
    if not found:
        return ""
    ops, count, loop, record = max(found, key=lambda one: one[:2])
    return (
        f" {count} turns of the loop at {named(loop)} are one graph of {ops:,} operations there, which took "
        f"{duration(record.dur / 1e9)} to compile: end each of these turns with {facts.words.barrier}, too."
    )


def _iterated(code: str) -> tuple[str, str]:
    """What a loop runs over, by its head; and a head that runs over a list of that."""
    loop = next(iter(nodes(code, ast.For)), None)
    if loop is None:
        return "what it runs over", "for element in elements:"
    return ast.unparse(loop.iter), f"for {ast.unparse(loop.target).strip('()')} in elements:"


def _fields(facts: Facts, group: Group, rhythm: str = "") -> dict[str, object]:
    change, names = group.first, facts.names
    condition, expected, inner = (names.place(one) for one in (change.condition, change.expected, change.made))
    barrier = names.place(group.extras[0].record.stack)
    changes = [extra.change for extra in group.alike if extra.change.what == change.what]
    kinds = len(dict.fromkeys((one.old, one.new) for one in changes if (one.role == "loop") == (change.role == "loop")))
    more = f" (and {kinds - 1} more such change{'s' * (kinds > 2)})" if kinds > 1 else ""
    went = f"from {change.old} to {change.new}{more}"
    decides = f"; {quoted(condition)} decides" if condition.line else ""
    if change.name and not change.role:
        decides = f"; {change.subject} decides"
    if change.old.endswith(("pass", "passes")):
        whether = f"whether it does its work, and the graph holds what was done: it went {went}"
    else:
        whether = (
            f"what is done, and the graph holds what was chosen in every pass: {change.new} came where {change.old} "
            "had been recorded"
        )
    argument, subject = change.name or expression(group.place.code, change), change.subject or "an argument"
    special = _special(group)
    turns = facts.names.loop(group.extras[0].record.stack)
    entries = [extra for extra in group.extras if extra.change.role == "entry"]
    loops = (loop for one in entries for loop in entered(facts, one.record.stack, one.record.program))
    anew = max(
        (recorded_again(facts, one.change.stack, one.record.stack, one.record.program) for one in entries), default=0
    )
    again = comes_again(group)
    over = re.fullmatch(r"for .+ in ([\w.]+):", group.place.code)  # what a loop runs over, but a call
    iterated, over_elements = _iterated(group.place.acting.code)
    return {
        "entered": f"{each_loop(loops)}{behind_again(anew)}",
        "over": iterated,
        "over_elements": over_elements,
        "anew": f", and so do {plural(anew, 'more turn')}, as a line of the loop records it anew" * bool(anew),
        "old": change.old,
        "new": change.new,
        "more": more,
        "went": went,
        "subject": change.subject,
        "of": f" ({change.subject})" if change.subject else "",
        "argument": f"{argument} ({subject})" if argument else subject,
        "operator": operator(change),
        "held": change.name or f"the {change.subject}",
        "bounds": _bounds(group),
        "special": f"{' and '.join(special)} {'are constants' if len(special) > 1 else 'is a constant'}",
        "instead": INSTEAD.get(operator(change), OTHERWISE),
        "instead_of": f"the if of {quoted(condition)}" if condition.line else "if",
        "in_place": f" instead of under the if of {quoted(condition)}" if condition.line else "",
        "condition": quoted(condition),
        "decides": decides,
        "whether": whether,
        "choice": "choice" if whether.startswith("whether") else "sequence of choices",
        "often": f" {rhythm}" if rhythm.startswith(("every", "from")) else "",
        "decides_on": f", where {quoted(condition)} holds," if condition.line else "",
        "each_time": "" if condition.line else "; or compute it before the barrier, so that every graph holds it",
        "at": f" at line {barrier.line}" if barrier.line else "",
        "most": f" ({max(sizes(group))} so far)" if change.role == "loop" and sizes(group) else "",
        "where": f" (line {expected.line})" if expected.line and expected.line != group.place.line else "",
        "turn": f"every turn of the loop at line {group.place.loop}"
        if group.place.loop
        else group.place.func.rpartition(".")[2] or "that loop",
        "inside": _inside(facts, group) if change.role == "pending" else "",
        "each": plural(again[-1].change.added if again else change.added, "operation"),
        "operations": " to ".join(f"{one.record.ops:,}" for one in again) + " operations",
        "count": plural(change.added or change.removed, "operation"),
        "switched": "on" if change.added > change.removed else "off",
        "cast": change.new if change.added > change.removed else change.old,
        "grown": f" ({over[1]} grows)" if over else "",
        "head": f" ({group.place.code.rstrip(':')})" if group.place.code else "",
        "loop": f" ({inner.code.rstrip(':')})" if inner.code else "",
        "over_turns": f" at {named(turns)}" if turns.line else "",
        "dtype": dtype(change.old),
        "shape": _shape(facts, group, went),
        "outputs": _outputs(facts, group, went),
        "words": facts.words,
    }


def _shape(facts: Facts, group: Group, went: str) -> str:
    change = group.first
    used = facts.place(change.stack)
    who = tensor(change, facts.place(change.made), used)
    op = operator(change)
    vary = varying(facts, group)
    maker = made_by(facts, change)
    makes = f", which {maker.func} ({short(maker)}) makes" if maker.line else ""
    if len(vary) > 1 and not grows(group):
        which = ", ".join(f"dimension {one.axis} of {one.tensor}" for one in vary)
        if (last := last_batch(facts, group, vary)) is not None:
            return f"the last batch of a pass is smaller ({last.sizes[0]} instead of {last.most}), in {which}: {went}"
        return f"sizes vary together, and every combination is a graph of its own: {which}{makes}, at first {went}"
    reads = f", which {op} reads at line {used.line}," if op and used.line and used.line != group.place.line else ""
    noun = change.what
    if group.sort == "shape" and len(dims(change.old)) != len(dims(change.new)):
        noun = "rank (the number of dimensions) of the shape"
    elif group.sort == "shape" and (changed := axes(change)):
        noun = f"shape (dimension{'s' * (len(changed) > 1)} {', '.join(map(str, changed))})"
    return f"the {noun} of {who}{f'{makes},' if makes else reads} changed {went}"


def _outputs(facts: Facts, group: Group, went: str) -> str:
    change = group.first
    held = "now still held" in change.subject
    made = facts.place(change.made)
    what = f"a result of {operator(change)}" if operator(change) else "a tensor"
    from_line = f" made at line {made.line}" if made.line and made.line != group.place.line else ""
    if held and change.name:
        kind = f"the {change.role} " if change.role in ("list", "dict", "set") else ""
        return f"{kind}{change.name} still holds {what}{from_line} at the barrier: one live output more ({went})"
    state = "is still held" if held else "is no longer held"
    return f"the set of tensors alive at the barrier changed {went}: {what}{from_line} {state}"
