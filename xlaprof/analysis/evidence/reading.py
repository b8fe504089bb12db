"""What to write instead of a line that reads from the device, by the use that the line makes of the value.

Where a library's function reads, such as ``clip_grad_norm_``, that function decides: what the line computes with it
("loss = ...") is then not what is read. Else :mod:`xlaprof.analysis.uses` says what takes the value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import named
from xlaprof.analysis.principles import MANY
from xlaprof.analysis.statements import nodes
from xlaprof.analysis.uses import PICKS, Read, Use, read_of
from xlaprof.vocabulary import STANDARD, Vocabulary, fill

SCALAR = "aten::_local_scalar_dense"
#: operations that read one number
SCALARS = frozenset({SCALAR, "jax.Array: one number"})

#: how often to read, where not every so many steps
ONCE = -1  # after a loop of its own
LATER = 0  # as seldom as now


class ReadAdvice(NamedTuple):
    """A read in the line's own words, and what to write instead."""

    name: str  # as the user knows it: ".item()", "print()", "the condition of the if"
    what: str  # the thing read: "one number", "a tensor"
    purpose: str  # where the line shows it: "to check for NaN or infinity"
    advice: str
    remedy: str  # code
    is_when: bool = False  # the advice says when to read, not how to do without
    option: str = ""  # one setting that ends all such reads
    at_once: bool = False  # the advice is to do on the device, for the whole tensor, what is done with each element


class _Way(NamedTuple):
    """What to do about reads of one use."""

    advice: str  # with {often}: how often it may be read; {every}: the same as a number
    purpose: str = ""
    remedy: str = ""
    name: str = ""  # where neither function nor line say it well
    option: str = ""  # one setting that ends all such reads


_DISTRIBUTIONS = (
    r"(?:Log|Half|Inverse|Relaxed|OneHot|Multivariate|LowRankMultivariate|Continuous|Negative|Mixture|Transformed|Logistic"
    r"|Generalized)*(?:Distribution|Categorical|CategoricalStraightThrough|Bernoulli|Beta|Binomial|Cauchy|Chi2|Dirichlet"
    r"|Exponential|FisherSnedecor|Gamma|Geometric|Gumbel|Independent|Kumaraswamy|LKJCholesky|Laplace|SameFamily"
    r"|Multinomial|Normal|Pareto|Poisson|StudentT|Uniform|VonMises|Weibull|Wishart)"
)
_EVERY = "if step % {every} == 0:\n    "
_ONCE = (
    "total = {words.arrays}.zeros((){words.on_device})\nfor x, y in loader:\n    total += loss_fn(model(x), y)\n"
    "    {words.barrier_code}\nprint(total.item())  # once"
)
_SHOW = _Way(
    "Show it {often}{after}, or show the value of some steps ago, which is long computed",
    "to show it",
    _EVERY + "print(loss.item()){comment}",
)

_OPTIMIZER = _Way(
    "Take an optimizer that reads nothing (AdamW, SGD): this one decides on its update by values that it reads, as "
    "Adafactor does by the norms of each parameter, and its step cannot run ahead",
    "to make its update",
    name="the optimizer",
)
#: library functions that read, by their names or ATen's operator; the first that is found counts
_FUNCTIONS = {
    r"clip_grad|clip_grads|get_total_norm": _Way(
        "Leave out error_if_nonfinite, and read the norm that clip_grad_norm_ returns {often}",
        "to raise an error where the norm is not finite",
        "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # stays on the device\n"
        + _EVERY
        + "print(norm.item())  # after the barrier",
        "clip_grad_norm_(error_if_nonfinite=True)",
    ),
    r"GradScaler": _Way(
        "Use autocast with bfloat16, which needs no GradScaler, or an optimizer of torch_xla.amp.syncfree, which skips "
        "a step with infinities on the device",
        "to learn whether gradients are infinite (found_inf)",
        'with torch.autocast("xla", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)\n'
        "loss.backward()\noptimizer.step()",
    ),
    r"^(Logger(Adapter)?\.)?(debug|info|warning|error|critical|exception|log)$": _SHOW._replace(name="logging"),
    r"__repr__|__str__|__format__|_tensor_str|^tqdm": _SHOW,
    rf"^{_DISTRIBUTIONS}\.(__init__|log_prob|cdf|icdf|_validate_sample)$": _Way(
        "Pass validate_args=False: a distribution checks its arguments on the host each time it is made",
        "to check its arguments",
        "torch.distributions.Distribution.set_default_validate_args(False)",
        option="validate_args",
    ),
    r"^(?!.*(LR|[Ss]ched|Plateau)).*\b(optimizer_)?step$": _OPTIMIZER,
    r"^detect_anomaly$": _Way(
        "Leave torch.autograd.detect_anomaly() out: it reads whether each gradient is NaN, to find where the first one "
        "comes from, and is for that alone",
        "to look for NaN",
        name="torch.autograd.detect_anomaly()",
        option="detect_anomaly",
    ),
    r"^jax_debug_nans$": _Way(
        "Leave jax_debug_nans (or jax_debug_infs) off, and turn it on to find out where a NaN comes from: with it each "
        "call of a jitted function waits for all that it returns, and looks at it on the host",
        "to look for NaN",
        name="jax_debug_nans",
        option="jax_debug_nans",
    ),
    r"linalg|cholesky|lobpcg": _Way(
        "Call the variant that leaves the check to you (torch.linalg.inv_ex, cholesky_ex, solve_ex)",
        "to check for errors",
    ),
}
_OTHER_FUNCTION = _Way(
    "Find what {name} looks at (a number that it is not given, a check of its arguments): pass that number, or leave "
    "the check out; else call it {often}"
)

_NOT_FINITE = _Way(
    "Replace what is not finite on the device ({words.arrays}.where; an update that is to be left out, too), or, to "
    "stop the program, look {often} at a flag kept on the device",
    "to check for NaN or infinity",
    "bad = bad | ~{words.arrays}.isfinite(loss)  # stays on the device\n"
    "if step % {every} == 0 and bad.item():\n    raise FloatingPointError(step)",
)
_POSITION = _Way(
    "Count the position in Python (enumerate): it is known on the host and need not be searched for on the device",
    "to find a position",
    "for index, t in enumerate(timesteps):\n    ...  # index is the position of t",
)
LOOKED_UP = "to look a text up with it"
_ACT = _Way(
    "Let one read serve many turns, with a batch of environments at a time: the host needs what it acts on. Where the "
    "network is small, act with a copy of it on the CPU",
    "to act on it",
)
#: of many environments at a time
_ACT_FOR_MANY = _ACT._replace(
    advice="Where the network is small, act with a copy of it on the CPU, brought up to date every few updates: the "
    "host needs what it acts on, and waits for no device then"
)
_COUNT = _Way(
    "Pass the number in (size=, dim_size=, num_classes=): the host knows how many there are where it makes the batch, "
    "and need not search the device for the largest index",
    "to count by the largest index",
)
_STACK = _Way(
    "Keep each value {words.keep} in the list, and bring all of them to the host with one read, after the loop, or at "
    "the end",
    remedy="values.append({loss})  # stays on the device\nvalues = {words.arrays}.stack(values).tolist()  # once",
)
_SAVE = _Way("Save less often, or hand a copy made on the device to a background thread")
_HOST = _Way(
    "Do this work on the device, or hand the tensor over once, after the loop. If the next turn needs what the host "
    "makes of it, as an environment that is given an action, let a turn do more: many environments at once"
)
_KEEP = _Way(
    "Keep the {value} {words.keep} and read it {often}{end}",
    remedy="{kept}.append({loss})  # stays on the device\n"
    + _EVERY
    + "print({words.arrays}.stack({kept}).tolist()){comment}\n    {kept}.clear()",
)
_ITSELF = "as positions ({words.take}, {words.write}), or in a mask ({words.arrays}.arange(largest) < size)"
#: of a number that other statements compute with
_COMPUTES = _Way(
    "Compute with the {tensor} itself, on the device, in place of the number (`{taker}`), where that is arithmetic; "
    "what is only shown, read {often}{end}",
)
#: of a number that the device computes
_COMPUTED = _Way(
    "Use the tensor itself in place of the number: " + _ITSELF + "; or compute the number where it comes from, before "
    "that is brought to the device: the host needs it at once, and no later read serves",
    "to use it as a whole number",
)
_USES = {
    Use.GOES_ON: _Way(
        "{until}{seldom}",
        "to decide whether to go on",
    ),
    Use.DECIDES: _Way(
        "Decide on the device ({words.arrays}.where, a mask{picks}), for the whole tensor at once; a test that only "
        "{stops}reports may look {often}{goes_on}",
        "to decide",
        "chosen = {words.arrays}.where(condition, one, other)  # decided on the device",
    ),
    Use.ASSERTS: _Way("Assert on the host before the upload, or look {often}"),
    Use.SIZES: _Way(
        "Keep one size, the largest, and mask what is beyond ({words.arrays}.where): the host then needs to know none",
        "for a size",
        "mask = {words.arrays}.arange(largest{words.on_device}) < size  # size stays on the device",
    ),
    Use.LOOKS_UP: _Way(
        "Let one read serve many turns, with a batch of texts that grow at a time (those that are done masked): the "
        "host needs the position at once, for the table of texts is its own",
        LOOKED_UP,
    ),
    Use.INDEXES: _Way(
        "Index on the device, with the tensor itself ({words.take}), and make a tensor of a list that is "
        "indexed; a table that lies on the host goes to the device once, before",
        "to index with it",
        "row = {words.take_code}  # index stays on the device",
    ),
    Use.ADDS_AT: _Way(
        "Add up on the device and read the sums {often}{end}: with {words.add}, at positions that a tensor holds, "
        "where steps add to other entries (those that Python chooses make a graph for each choice); or bring what a "
        "step adds to the host at once, with one .tolist()",
        "to add it up",
        "sums = {words.arrays}.zeros(ENTRIES{words.on_device})\n{words.add_code}  # entries: a tensor from the host",
    ),
    Use.ADDS_UP: _Way(
        "Add up on the device, and read the sum {often}{end}",
        "to add it up",
        "correct = {words.arrays}.zeros((){words.on_device})\nfor x, y in loader:\n"
        "    correct += (model(x).argmax(-1) == y).sum()\n    {words.barrier_code}\nprint(correct.item())  # once",
    ),
    Use.UPDATES: _Way(
        "Make what this line updates on the device, before the loop, and compute the update there: the next turn takes "
        "it from the device, and the host waits for no value",
        "to update what the next turn takes",
        "scale = {words.arrays}.ones((){words.on_device})\nscale = scale * change  # in each turn: stays on the device",
    ),
    Use.LOGS: _KEEP,
    Use.WHOLE: _Way(
        "Keep the number in Python, beside the tensor, where the host knows how it changes (a position in a ring, a "
        "count): the host needs it at once, and no later read serves. Or use the tensor itself: " + _ITSELF,
        "to use it as a whole number",
    ),
    Use.OTHER: _KEEP._replace(advice=_KEEP.advice + "; what is computed with it, compute on the device"),
}

_TURNS_TOO = _Way(
    "Choose on the device within the loop at {loop} ({words.arrays}.where). Where the value decides on the number of "
    "turns as well, run the most that it can take, so that a turn which is not needed changes nothing: with the choice "
    "alone on the device the loop itself would read",
    "to decide",
)
#: of a read of each element in a loop over a tensor
ELEMENTS = (
    "Bring the whole tensor to the host once, before the loop over its elements ({to_host}): each element is read by "
    "itself here, and first taken out by itself. What is then computed or counted with them, the host can do."
)
_CALLED = "what is called here"
_LARGEST = r"\bmax\([^()]*\)(\.item\(\))?\)?\s*\+\s*1\b"  # of indices, and one more
_LEVELS = frozenset({"debug", "info"})
_FINITE = frozenset({"isnan", "isinf", "isfinite"})
_SEARCHES = frozenset({"nonzero", "argwhere"})
_OBSERVED = r"\b(obs|observations?|states?|frames?)\.(cpu|numpy|tolist)\("  # of one environment it may be large
_ACTS = frozenset({"action", "actions", "obs", "observation", "observations", "env", "envs"})
#: special methods, which Python calls: what the user wrote
_SPECIAL = {
    "__repr__": "print()",
    "__str__": "print()",
    "__format__": "an f-string",
    "__contains__": "the test with in",
    "__array__": ".numpy()",
    "__iter__": "iteration",
    "__reduce_ex__": "pickling",
    "__deepcopy__": "copy.deepcopy()",
}


def advise_read(
    op: str,
    via: str,
    code: str,
    every: int,
    words: Vocabulary = STANDARD,
    turns: Place = NOWHERE,
    takers: Sequence[str] = (),
    func: str = "",
    *,
    seldom: bool = False,
    many: bool = False,
) -> ReadAdvice:
    """Advice on the line ``code`` that reads by ``op`` through ``via``.

    ``every``: steps between the reads advised; :data:`ONCE`: they lie in a loop between the steps; :data:`LATER`: they
    come seldom already. ``turns``: the head of a loop whose turns within the step such a value decides on. ``takers``:
    the statements that take what the line binds, or returns from ``func``. ``seldom``: to read less often gains
    nothing: they come every so many turns already, or a turn more costs more than a read. ``many``: numbers are read at
    once, as one for each of many environments.
    """
    scalar = op in SCALARS
    read = read_of(code, scalar=scalar, takers=takers, func=func)
    via = "" if read.written and via.rpartition(".")[2] not in _SPECIAL else via
    inside = "" if via or read.name else _called_there(code)
    name = _named(via or inside.removeprefix(_CALLED)) or read.name or inside * scalar
    name = name or ("a tensor's value" if scalar else "a tensor's copy")
    way = _way(op, via or inside * scalar, name, read)
    if way in (_USES[Use.DECIDES], _USES[Use.GOES_ON]) and turns.line and not code.startswith("while "):
        way = _TURNS_TOO
    once = every == ONCE
    if way in (_USES[Use.OTHER], _USES[Use.WHOLE], _USES[Use.SIZES]) and re.search(_LARGEST, code):
        way = _COUNT
    elif way is _USES[Use.WHOLE] and read.computed:
        way = _COMPUTED
    elif way is _ACT and many and not re.search(_OBSERVED, code):
        way = _ACT_FOR_MANY
    elif way is _KEEP and once and "append" in read.words:
        way = _STACK
    elif way is _USES[Use.OTHER] and scalar and read.taker:
        way = _COMPUTES
    fewer = "" if seldom else f", or test the condition only every {MANY} turns"
    often = {ONCE: "once, after the loop", LATER: "a step later, when it is computed"}
    value = "loss" if any("loss" in word for word in read.words) else "value"
    of_all = f"sum of the {value}{'es' if value == 'loss' else 's'}"
    advice = way.advice.format(
        often=often.get(every, f"every {every} steps"),
        seldom=fewer,
        taker=read.taker,
        tensor="array" if words.arrays != STANDARD.arrays else "tensor",
        end="" if once else ", or at the end",
        value=of_all if once else value,
        stops="" if once else "stops or ",
        goes_on="; where a value ends the loop early, read it every few turns" if once and not seldom else "",
        name=name if name != _CALLED else "a call on this line",
        words=words,
        loop=named(turns),
        until=fill(words.until, arrays=words.arrays),
        picks=f", {words.arrays}.{PICKS[name]} for {name}" if name in PICKS else "",
        after=f", {words.after_barrier}" if words.after_barrier else "",
    )
    if name == "an f-string" and read.words & _LEVELS:
        advice += "; or ask isEnabledFor() before, for an f-string is made also where the level shows nothing"
    remedy = way.remedy
    if every in (ONCE, LATER) and "{every}" in remedy:
        remedy = _ONCE if once and scalar else ""
    comment = f"  # {words.after_barrier}" if words.after_barrier else ""
    name_of = "loss" if "loss" in value else "value"
    kept = "losses" if name_of == "loss" else "values"
    fields = {"loss": fill(words.keep_code, name=name_of), "kept": kept, "comment": comment}
    remedy = remedy.format(every=every, words=words, **fields)
    remedy = "\n".join(line for line in remedy.splitlines() if line.strip())
    what = "one number" if scalar else "a tensor"
    at_once = way in (_USES[Use.DECIDES], _TURNS_TOO)
    return ReadAdvice(way.name or name, what, way.purpose, advice, remedy, "{often}" in way.advice, way.option, at_once)


def _way(op: str, via: str, name: str, read: Read) -> _Way:
    for pattern, way in _FUNCTIONS.items():
        if re.search(pattern, via) or re.search(pattern, op):
            return way
    if name in ("save()", "pickling"):
        return _SAVE
    use = Use.DECIDES if "__contains__" in via else read.use
    if via and via.rpartition(".")[2] not in _SPECIAL:
        return _OTHER_FUNCTION if op in SCALARS else _HOST
    if use in (Use.GOES_ON, Use.DECIDES, Use.ASSERTS, Use.WHOLE, Use.OTHER) and read.words & _FINITE:
        return _NOT_FINITE
    if use in (Use.INDEXES, Use.WHOLE, Use.OTHER) and read.words & _SEARCHES:
        return _POSITION
    if read.words & _ACTS and (use in (Use.LOGS, Use.WHOLE, Use.OTHER) or read.taker):
        return _ACT  # whatever is decided by what the environment answers
    if op not in SCALARS and use == Use.OTHER:
        return _HOST
    return _USES[use]


def _called_there(code: str) -> str:
    """What a line calls that has one call and does not read by itself: "scheduler.step"; or that it calls something."""
    calls = nodes(code, ast.Call)
    return ast.unparse(calls[0].func) if len(calls) == 1 else _CALLED * bool(calls)


def _named(via: str) -> str:
    """A library function as its caller calls it: a constructor by the name of its class."""
    owner, _, method = via.rpartition(".")
    if method == "__init__":
        return f"{owner.rpartition('.')[2]}()" if owner else "a constructor"
    return _SPECIAL.get(method, f"{method}()" if method else "")
