"""The purpose of a line that reads from the device, in its own words, and what to write instead.

The library function that read it decides, where there is one (``Tensor.__format__``, ``clip_grad_norm_``): what the
line computes with it ("loss = ...") is then not what is read. Else the code of the line does, then ATen's operator.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xlaprof.vocabulary import STANDARD, Vocabulary, fill

SCALAR = "aten::_local_scalar_dense"

#: how often to read, where not every so many steps
ONCE = -1  # after a loop of its own
LATER = 0  # as seldom as now
_TURNS = 10  # of a loop that goes on until a value says so: between two looks at it


class ReadAdvice(NamedTuple):
    """A read in the line's own words, and what to write instead."""

    name: str  # as the user knows it: ".item()", "print()", "the condition of the if"
    what: str  # the thing read: "one number", "a tensor"
    purpose: str  # where the line shows it: "to check for NaN or infinity"
    advice: str
    remedy: str  # code
    is_when: bool = False  # the advice says when to read, not how to do without


class _Pattern(NamedTuple):
    """Reads of one purpose. A pattern fits where both regular expressions are found; one for code alone fits a library
    function's reads where it is found in that function's name, too."""

    via: str  # in the name of the library function, or of ATen's operator; empty: any
    code: str  # in the code of the line
    advice: str  # with {often}: how often it may be read; {every}: the same as a number
    purpose: str = ""
    name: str = ""  # where neither function nor line say it well
    remedy: str = ""
    numbers_only: bool = True


_DISTRIBUTIONS = (
    r"(?:Log|Half|Inverse|Relaxed|OneHot|Multivariate|LowRankMultivariate|Continuous|Negative|Mixture|Transformed|Logistic"
    r"|Generalized)*(?:Distribution|Categorical|CategoricalStraightThrough|Bernoulli|Beta|Binomial|Cauchy|Chi2|Dirichlet"
    r"|Exponential|FisherSnedecor|Gamma|Geometric|Gumbel|Independent|Kumaraswamy|LKJCholesky|Laplace|SameFamily"
    r"|Multinomial|Normal|Pareto|Poisson|StudentT|Uniform|VonMises|Weibull|Wishart)"
)
_PLAIN = r"\.(?:item|tolist|cpu|numpy)\("  # the line reads by itself
_EVERY = "if step % {every} == 0:\n    "
_DECIDE = "Decide on the device ({words.arrays}.where, a mask), or look at the value only {often}"
#: what a step goes on with: to look less often would change it
_CHOOSE = "Choose on the device ({words.arrays}.where, or a factor of 0 and 1), for the whole tensor at once"
_ONCE = (
    "total = {words.arrays}.zeros((), device=device)\nfor x, y in loader:\n    total += loss_fn(model(x), y)\n"
    "    {words.barrier_code}\nprint(total.item())  # once"
)

#: the first that fits counts
_PATTERNS = (
    _Pattern(
        r"clip_grad|clip_grads|get_total_norm",
        "",
        "Leave out error_if_nonfinite, and read the norm that clip_grad_norm_ returns {often}",
        purpose="to raise an error where the norm is not finite",
        name="clip_grad_norm_(error_if_nonfinite=True)",
        remedy="norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # stays on the device\n"
        + _EVERY
        + "print(norm.item())  # after the barrier",
    ),
    _Pattern(
        r"GradScaler",
        "",
        "Use autocast with bfloat16, which needs no GradScaler, or an optimizer of torch_xla.amp.syncfree, which skips "
        "a step with infinities on the device",
        purpose="to learn whether gradients are infinite (found_inf)",
        remedy='with torch.autocast("xla", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)\n'
        "loss.backward()\noptimizer.step()",
    ),
    _Pattern(
        r"^(Logger(Adapter)?\.)?(debug|info|warning|error|critical|exception|log)$",
        "",
        "Log {often}, after the barrier, or hand the logger the value of some steps ago",
        purpose="to format a message",
        name="logging",
        remedy=_EVERY + 'log.info("loss %s", loss.item())  # after the barrier',
        numbers_only=False,
    ),
    _Pattern(
        rf"^{_DISTRIBUTIONS}\.(__init__|log_prob|cdf|icdf|_validate_sample)$",
        rf"^(?!.*{_PLAIN})",
        "Pass validate_args=False: a distribution checks its arguments on the host each time it is made",
        purpose="to check its arguments",
        remedy="torch.distributions.Distribution.set_default_validate_args(False)",
    ),
    _Pattern(
        r"linalg|cholesky|lobpcg",
        "",
        "Call the variant that leaves the check to you (torch.linalg.inv_ex, cholesky_ex, solve_ex)",
        purpose="to check for errors",
        numbers_only=False,
    ),
    _Pattern(
        "",
        r"set_postfix|set_description|postfix|progress|\bp?bar\.|tqdm",
        "Show the value {often}, or that of some steps ago, which is long computed",
        purpose="to show it in the progress bar",
        remedy=_EVERY + "bar.set_postfix(loss=loss.item())  # after the barrier",
        numbers_only=False,
    ),
    _Pattern(
        "",
        r"isnan|isinf|isfinite|non_?finite",
        "Replace what is not finite on the device ({words.arrays}.where; an update that is to be left out, too), or, "
        "to stop the program, look {often} at a flag kept on the device",
        purpose="to check for NaN or infinity",
        remedy="bad = bad | ~{words.arrays}.isfinite(loss)  # stays on the device\n"
        "if step % {every} == 0 and bad.item():\n    raise FloatingPointError(step)",
    ),
    _Pattern(
        "",
        r"nonzero|argwhere|== ?timestep|timesteps? ?==",
        "Count the position in Python (enumerate): it is known on the host and need not be searched for on the device",
        purpose="to find a position",
        remedy="for index, t in enumerate(timesteps):\n    ...  # index is the position of t",
        numbers_only=False,
    ),
    _Pattern(
        "",
        r"^while\b",
        "Run a fixed number of turns with a mask ({words.arrays}.where), or test the condition only every {every} "
        "turns",
        purpose="to decide whether to go on",
    ),
    _Pattern("", r"^assert\b", "Assert on the host before the upload, or look {often}"),
    _Pattern(
        "",
        r"^(el)?if\b(?!.*(all|any)\(|.*(done|eos|finish|stop))",
        _DECIDE,
        purpose="to decide which way to go",
        remedy="out = {words.arrays}.where(condition, one, other)  # decided on the device",
    ),
    _Pattern(
        "",
        r"^(el)?if\b|\bif\b.*(\.item\(\)|any\(\)|all\(\))",
        _DECIDE,
        purpose="to decide which way to go",
        remedy="done = done | (token == EOS)  # stays on the device\n"
        "if step % {every} == 0 and done.all().item():\n    break",
    ),
    _Pattern(r"__contains__", "", _DECIDE),
    _Pattern(
        "",
        r"^(?!.*(\.item\(|\.tolist\(|\b(float|int|print|log\w*)\()).*\bif\b.+\belse\b",
        _CHOOSE,
        purpose="to choose between two values",
        remedy="chosen = {words.arrays}.where(condition, one, other)  # decided on the device",
    ),
    _Pattern(
        r"__repr__|__str__|_tensor_str",
        "",
        "Print {often}, after the barrier{end}",
        remedy=_EVERY + "print(loss.item())  # after the barrier",
        numbers_only=False,
    ),
    _Pattern(
        "",
        r"\bactions?\b|\bobs(ervations?)?\b|\benvs?\.step\(",
        "Let one read serve many turns, with a batch of environments at a time: the host needs what it acts on. Where "
        "the network is small, act with a copy of it on the CPU",
        purpose="to act on it",
        numbers_only=False,
    ),
    _Pattern(
        "",
        r"correct|accura|\bacc\b|\bhits\b|==.*sum\(\)|\.eq\(.*sum\(\)|metric|\bscore|\bf1\b",
        "Add up on the device, and read the sum once, after the loop",
        purpose="for a metric",
        remedy="correct = {words.arrays}.zeros((), device=device)\nfor x, y in loader:\n"
        "    correct += (model(x).argmax(-1) == y).sum()\n    {words.barrier_code}\nprint(correct.item())  # once",
    ),
    _Pattern(
        "",
        r"loss",
        "Keep the {loss} {words.keep} and read it {often}{end}",
        remedy="losses.append({loss})  # stays on the device\n"
        + _EVERY
        + "print({words.arrays}.stack(losses).tolist())  # after the barrier\n    losses.clear()",
    ),
)

#: code of the line -> the line's own word for the read; the first that is found counts
_WORDS = (
    (r"\.item\(\)", ".item()"),
    (r"\.tolist\(\)", ".tolist()"),
    (r"\.cpu\(\)", ".cpu()"),
    (r"\.numpy\(|np\.(as)?array\(", ".numpy()"),
    (r"\.to\(.{0,20}cpu", '.to("cpu")'),
    (r"\bsave\(", "save()"),
    (r"torch\.equal\(", "torch.equal()"),
    (r"allclose\(", "torch.allclose()"),
    (r"\bfloat\(", "float()"),
    (r"\bint\(", "int()"),
    (r"\bbool\(", "bool()"),
    (r"\bround\(", "round()"),
    (r"\brange\(", "range()"),
    (r"\bprint\(", "print()"),
    (r"\.info\(|\.debug\(|\.warning\(|\.add_scalar\(|\blog\w*\(", "logging"),
    (r"^while\b", "the condition of the while"),
    (r"^assert\b", "the assertion"),
    (r"^(el)?if\b", "the condition of the if"),
    (r"\bnot\b|\band\b|\bor\b|\bif\b", "a test"),
)
#: a library function that makes the value of its name, and reads another one: to check its arguments
_COMPUTES = "_loss"
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


def advise_read(op: str, via: str, code: str, every: int, words: Vocabulary = STANDARD) -> ReadAdvice:
    """Advice on the line ``code`` that reads by ``op`` through ``via``.

    ``every``: steps between the reads advised; :data:`ONCE`: they lie in a loop between the steps; :data:`LATER`: they
    come seldom already.
    """
    scalar = op == SCALAR
    what = "one number" if scalar else "a tensor"
    name = _name(via, code, scalar)
    inside = "" if via.rpartition(".")[2] in _SPECIAL or re.search(_PLAIN, code) else via
    for pattern in _PATTERNS:
        if inside and not pattern.via and (inside.endswith(_COMPUTES) or not re.search(pattern.code, inside)):
            continue
        of_it = any(re.search(pattern.via, one) for one in (via, op))
        if of_it and (scalar or not pattern.numbers_only) and re.search(pattern.code, code):
            remedy = pattern.remedy
            if every in (ONCE, LATER) and "{every}" in remedy:
                remedy = _ONCE if every == ONCE and re.search(r"loss|print", code) else ""
            loss = fill(words.keep_code, name="loss")
            remedy = remedy.format(every=every, words=words, loss=loss)
            advice = _filled(pattern.advice, every, words)
            return ReadAdvice(pattern.name or name, what, pattern.purpose, advice, remedy, "{often}" in pattern.advice)
    if scalar and inside:
        text = f"Call {name} {{often}}, or leave out what it looks at the value for"
    elif scalar:
        text = "Keep the {value} {words.keep} and read it {often}{end}"
    elif name in ("save()", "pickling"):
        text = "Save less often, or hand a copy made on the device to a background thread"
    else:
        text = (
            "Do this work on the device, or hand the tensor over once, after the loop. If the next turn needs what the "
            "host makes of it, as an environment that is given an action, let a turn do more: many environments at once"
        )
    return ReadAdvice(name, what, "", _filled(text, every, words), "", is_when=scalar)


def _filled(text: str, every: int, words: Vocabulary) -> str:
    often = {ONCE: "once, after the loop", LATER: "a step later, when it is computed"}.get(
        every, f"every {every} steps"
    )
    once = every == ONCE
    return text.format(
        often=often,
        every=max(every, _TURNS),
        end="" if once else ", or at the end",
        loss="sum of the losses" if once else "loss",
        value="sum of the values" if once else "value",
        words=words,
    )


def _name(via: str, code: str, scalar: bool) -> str:
    method = via.rpartition(".")[2]
    if method in _SPECIAL:
        return _SPECIAL[method]
    if method and method != "__init__":
        return f"{method}()"
    for pattern, name in _WORDS:
        if re.search(pattern, code):
            return name
    if method:  # a constructor: the line calls it by the name of its class
        return f"{via.split('.')[-2]}()" if "." in via else "a constructor"
    return "a tensor's value" if scalar else "a tensor's copy"
