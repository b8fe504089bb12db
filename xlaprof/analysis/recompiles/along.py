"""What goes with a size that varies, so that padding alone is not enough: loops, numbers, work along the dimension."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Place
from xlaprof.analysis.principles import NAMED
from xlaprof.analysis.recompiles.arguments import is_length
from xlaprof.analysis.recompiles.group import Group
from xlaprof.analysis.recompiles.wording import quoted
from xlaprof.analysis.shapes import axes, dims
from xlaprof.analysis.statements import parsed
from xlaprof.events import Change

#: the head of a loop whose passes a padded tensor decides: it runs over it, or over its length
_OVER_A_TENSOR = r"(async )?for .+ in ((?!range\()|.*(\.shape|\.size\(|len\())"
#: losses with labels of whole numbers, one of which does not count
_WITH_LABELS = r"nll_loss\w*|cross_entropy\w*"
#: operations that padding changes, and what keeps it out of their results
_KEPT_OUT = (
    (r"linalg_\w+|cholesky\w*|triangular_solve|(log)?det|inverse", "rows and columns of the unit matrix in"),
    (r"mm|bmm|addmm|baddbmm|matmul|mv|dot|vdot", "0 in the padding before"),
    (
        r"_?(log_)?softmax|logsumexp|topk|sort|argsort|argmax|max|amax|kthvalue|median",
        "-inf in the padding (masked_fill) before",
    ),
    (_WITH_LABELS, "labels that are ignored (ignore_index: -100, unless another is given) in the padding before"),
    (r"argmin|min|amin", "inf in the padding (masked_fill) before"),
    (r"mean|sum|var|std|norm|linalg_vector_norm|cumsum|native_batch_norm|\w*_loss\w*", "a mask of what is real in"),
    (r"prod|cumprod", "1 in the padding before"),
)


def needs(facts: Facts, group: Group) -> Iterator[str]:
    """Sentences on what else is due where the sizes of a group are padded."""
    loops = [place for place in passes(facts, group) if not re.match(_OVER_A_TENSOR, place.acting.code)]
    driven = {facts.place(one.stack): one for one in _numbers(facts, group) if is_length(one.subject)}
    others = [f"the loop at {quoted(place)}" for place in loops[:NAMED]]
    others += [f"the {one.subject} at {quoted(place)}" for place, one in list(driven.items())[:NAMED]]
    if others:
        yield (
            f"That alone is not enough where {' and '.join(others)} does not follow from the padded tensor's shape: "
            "round the number itself up to the same sizes where it is chosen, and leave out of the result what lies "
            "beyond the number that is meant."
        )
    kept: dict[str, dict[str, None]] = {}
    for how, what in _kept_out(facts, group):
        kept.setdefault(how, {})[what] = None
    if kept:
        ways = (f"{how} {' and '.join(list(what)[:NAMED])}" for how, what in kept.items())
        yield f"The padding must not count: {'; '.join(ways)}."


def labels(facts: Facts, group: Group) -> dict[str, str]:
    """The names of the tensors that a loss is given as labels, each with the label that this ignores, as Python. Padded
    with 0 they would be the first class."""
    found: dict[str, str] = {}
    for change in _working_along(group):
        if not re.fullmatch(_WITH_LABELS, change.subject.removeprefix("aten::")):
            continue
        tree = parsed(facts.place(change.stack).code, parts=True)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ():
            named = {one.arg: one.value for one in call.keywords}
            target = named.get("target", next(iter(call.args[1:2]), None))
            inside = ast.walk(target) if target is not None else ()
            if name := next((node.id for node in inside if isinstance(node, ast.Name)), ""):
                found.setdefault(name, ast.unparse(named["ignore_index"]) if "ignore_index" in named else "-100")
    return found


def passes(facts: Facts, group: Group) -> list[Place]:
    """Heads of the loops that have more or fewer passes in these graphs."""
    parts = (part.change for extra in group.extras for part in extra.record.parts)
    return list(dict.fromkeys(facts.place(part.made) for part in parts if part.role == "loop"))


def _numbers(facts: Facts, group: Group) -> Iterator[Change]:
    """Arguments at lines of the program's that went as a size did."""
    for extra in group.extras:
        old, new = dims(extra.change.old), dims(extra.change.new)
        went = {(str(old[axis]), str(new[axis])) for axis in axes(extra.change)}
        for one in extra.record.along:
            if one.what == "argument" and (one.old, one.new) in went and not facts.place(one.stack).library:
                yield one


def _kept_out(facts: Facts, group: Group) -> Iterator[tuple[str, str]]:
    """What to put into the padding, and what it is for."""
    for one in _working_along(group):
        name, place = one.subject.removeprefix("aten::"), facts.place(one.stack)
        how = next((how for names, how in _KEPT_OUT if re.fullmatch(names, name)), "")
        if how and place.line and not place.library:
            yield how, f"{one.subject} at {quoted(place)}"


def _working_along(group: Group) -> Iterable[Change]:
    """The operations that work along a dimension of another size, once each."""
    return dict.fromkeys(one for extra in group.extras for one in extra.record.along if one.what == "along")
