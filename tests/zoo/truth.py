"""The mistakes of the zoo's programs, written down by an expert, and the rule by which a finding matches one.

``NAME.expected.json`` has the truth of ``NAME.py``. ``NAME_fixed.py`` has none of these mistakes, so every finding
there is a false alarm, as it is where ``clean`` is true. **A finding is right** when

1. its ``kind`` is the truth's;
2. its line, in the program's own file, is the truth's ``line`` or one of ``also_ok``;
3. it names the change. Where the truth gives numbers (``0.8 -> 1.0``, ``5 -> 10``) the finding's ``from`` and ``to``
   are these numbers, up to a millionth. Of shapes (``[32, 16] -> [8, 16]``) the sizes that differ are compared
   (``32 -> 8``), so that another input which changed with it, ``[32] -> [8]``, is as good; where the rank differs,
   ranks and numbers of elements are. Dtypes are compared under their usual names (``bf16``, ``bfloat16``). Where the
   truth gives words (``(step+1) % 4 == 0``, ``opt.step()``), the finding's change must be of the same
   sort: a size, a dtype, a constant, a path of the program, live outputs, the place of the barrier, the mode of a
   module... (``SORTS``, looked for in the finding's ``change`` and ``cause``);
4. it has the idea. Of a fallback the operator is named (without ``aten::`` and underscores); ``idea``, where the truth
   has it, is a regular expression that is found in cause, advice, change, operation or remedy.

Truths and findings match one to one. A read that needs a graph of its own is one finding and two mistakes: a
``transfer`` with a ``change`` is matched as a ``recompile`` of the same line and change, too. Its ``parts`` are
matched each. So are a selection by a mask and its gradient, which goes back by the same mask: a ``fallback`` is
matched at its ``also`` lines, too. Findings that are right a second time are *repeated*, not wrong: two tensors of a
line may show the same mistake. ``acceptable`` lists findings that are not required, but that an expert would not call
wrong. Every other finding is a false alarm.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

#: sort of change -> how a truth's ``what``, or a finding's text, says it
SORTS = {
    "size": r"shape|\bsizes?\b|\brank\b|dimension|length|number of selected",
    "dtype": r"dtype|precision|float16|float32|float64|\bhalf\b",
    "special scalar": r"special|0-or-1|0, 1|python scalar|scalar",
    "constant": r"constant|argument|python (int|value|number|float)|baked",
    "mode": r"train\b|training|eval\b|\bmode\b|dropout|batch.?norm",
    "outputs": r"output|alive|\blive\b|still held|\bheld\b",
    "barrier": r"barrier|\bsync|mark_step|before the step's end|a graph of its own",
    "path": r"control.flow|\bop(eration)? sequence|operation|\bbranch|\bpath\b|another op",
    "inputs": r"set of inputs|other inputs|\blist\b|\bstate\b|\.grad\b|same tensor|alias|requires_grad|frozen",
    "evicted": r"evict|dropped from",
}
_DTYPES = {
    "f16": "float16", "half": "float16", "f32": "float32", "float": "float32", "f64": "float64", "double": "float64",
    "bf16": "bfloat16", "s64": "int64", "i64": "int64", "long": "int64", "s32": "int32", "i32": "int32",
    "int": "int32", "pred": "bool", "u8": "uint8", "s8": "int8",
}  # fmt: skip
_DTYPE_NAMES = frozenset(_DTYPES.values()) | frozenset(_DTYPES)
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?(?![\w.]*\w)", re.IGNORECASE)
_SHAPE = re.compile(r"[\[(]\s*((?:\d+\s*,\s*)*\d*)\s*,?\s*[\])]")


class Truth(NamedTuple):
    """One mistake of a program."""

    kind: str
    line: int
    also_ok: tuple[int, ...]
    cause: str
    change: tuple[str, str, str] | None  # what, from, to
    idea: str  # a regular expression, "" where line, kind and change say it all
    source: str

    @property
    def lines(self) -> frozenset[int]:
        """Every line that may be named."""
        return frozenset((self.line, *self.also_ok))


class Story(NamedTuple):
    """A program, or its fixed version, and its mistakes."""

    path: Path
    truths: tuple[Truth, ...]
    acceptable: tuple[Truth, ...]

    @property
    def name(self) -> str:
        return self.path.stem


class Score(NamedTuple):
    """The findings of a story, sorted by the rule. They are those of the report's JSON."""

    met: list[tuple[Truth, dict[str, Any]]]
    missed: list[Truth]
    repeated: list[dict[str, Any]]
    accepted: list[dict[str, Any]]
    alarms: list[dict[str, Any]]


def stories(folder: Path) -> Iterator[Story]:
    """The programs of ``folder`` and of the folders in it that have a truth, each followed by its fixed version.

    A truth may name the folder in which its program was frozen, from its own.
    """
    for truth in sorted(folder.rglob("*.expected.json")):
        name = truth.name.removesuffix(".expected.json")
        expected = json.loads(truth.read_text())
        program = truth.parent / expected.get("folder", "") / f"{name}.py"
        yield Story(program, _truths(expected["findings"]), _truths(expected.get("acceptable", ())))
        fixed = truth.with_name(f"{name}_fixed.py")
        if fixed.exists():
            yield Story(fixed, (), _truths(expected.get("acceptable_fixed", ())))


def _truths(entries: Any) -> tuple[Truth, ...]:
    return tuple(
        Truth(
            kind=one["kind"],
            line=one["line"],
            also_ok=tuple(one.get("also_ok", ())),
            cause=one.get("cause", ""),
            change=_change(one.get("change")),
            idea=one.get("idea", ""),
            source=one.get("source", ""),
        )
        for one in entries
    )


def _change(change: dict[str, Any] | None) -> tuple[str, str, str] | None:
    return (str(change["what"]), str(change["from"]), str(change["to"])) if change else None


def score(story: Story, findings: list[dict[str, Any]]) -> Score:
    """Match truths and findings one to one, as many as possible."""
    reported = len(findings)
    findings = [
        *findings,
        *(part for one in findings for part in one.get("parts", ())),
    ]
    findings = [
        *findings,
        *({**one, "kind": "recompile"} for one in findings if _cuts_graph(one)),
        *({**one, **line} for one in findings if one["kind"] == "fallback" for line in one.get("also", ())),
    ]
    fitting = [[i for i, finding in enumerate(findings) if is_right(truth, finding, story)] for truth in story.truths]
    taken: dict[int, int] = {}  # finding -> truth
    for truth in range(len(fitting)):
        _assign(truth, fitting, taken, set())
    met = {truth: finding for finding, truth in taken.items()}
    right = {i for some in fitting for i in some}
    left = [i for i in range(reported) if i not in right]
    fine = [i for i in left if any(is_right(truth, findings[i], story) for truth in story.acceptable)]
    return Score(
        met=[(story.truths[truth], findings[i]) for truth, i in sorted(met.items())],
        missed=[truth for i, truth in enumerate(story.truths) if i not in met],
        repeated=[findings[i] for i in sorted(right - set(taken)) if i < reported],
        accepted=[findings[i] for i in fine],
        alarms=[findings[i] for i in left if i not in fine],
    )


def _cuts_graph(finding: dict[str, Any]) -> bool:
    return finding["kind"] == "transfer" and bool(finding.get("change"))


def _assign(truth: int, fitting: list[list[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Match ``truth`` with a finding; earlier matches move where that makes room."""
    for finding in fitting[truth]:
        if finding in tried:
            continue
        tried.add(finding)
        if finding not in taken or _assign(taken[finding], fitting, taken, tried):
            taken[finding] = truth
            return True
    return False


def is_right(truth: Truth, finding: dict[str, Any], story: Story) -> bool:
    """The rule of this module's first lines."""
    return not wrong(truth, finding, story)


def wrong(truth: Truth, finding: dict[str, Any], story: Story) -> str:
    """Why ``finding`` is not ``truth``: "kind", "line", "change", "idea"; "" where it is."""
    if finding["kind"] != truth.kind:
        return "kind"
    if Path(finding["file"]).name != story.path.name or finding["line"] not in truth.lines:
        return "line"
    if truth.change is not None and not _same_change(truth.change, finding):
        return "change"
    text = _text(finding)
    if truth.kind == "fallback" and (ops := re.findall(r"aten::(\w+)", truth.cause)):
        said = text.replace("_", "")
        if not any(op.replace("_", "") in said for op in ops):
            return "idea"
    if truth.idea and not re.search(truth.idea, text, re.IGNORECASE):
        return "idea"
    return ""


def _text(finding: dict[str, Any]) -> str:
    change = finding.get("change") or {}
    parts = (finding["cause"], finding["advice"], finding["operation"], *change.values(), finding.get("remedy", ""))
    return "\n".join(map(str, parts))


def _same_change(truth: tuple[str, str, str], finding: dict[str, Any]) -> bool:
    what, old, new = truth
    told = finding.get("change")
    if not told:
        return False
    sorts = _sorts(what) or _sorts(f"{what} {old} {new}")
    if "outputs" not in sorts and (wanted := _values(old, new, alone=True)) is not None:
        got = _values(str(told["from"]), str(told["to"]))
        return got is not None and _equal(wanted, got)
    if _is_dtype(old) and _is_dtype(new):
        return (_dtype(old), _dtype(new)) == (_dtype(str(told["from"])), _dtype(str(told["to"])))
    said = _sorts(f"{told['what']} {told['from']} {told['to']} {finding['cause']}")
    return not sorts or bool(sorts & said)


def _sorts(text: str) -> set[str]:
    return {sort for sort, pattern in SORTS.items() if re.search(pattern, text, re.IGNORECASE)}


def _values(old: str, new: str, *, alone: bool = False) -> tuple[tuple[float, float], ...] | None:
    """The sizes that differ, before and after, of shapes; two numbers, of numbers; ``None``: neither.

    ``alone``: only where the texts are shapes or numbers and nothing else.
    """
    texts = [text.strip() for text in (old, new)]
    shapes = [_SHAPE.fullmatch(text) if alone else _SHAPE.search(text) for text in texts]
    if shapes[0] and shapes[1]:
        a, b = _sizes(shapes[0]), _sizes(shapes[1])
        if len(a) != len(b):
            return ((float(len(a)), float(len(b))), *((float(x), float(x)) for x in (math.prod(a), math.prod(b))))
        return tuple(sorted({(float(x), float(y)) for x, y in zip(a, b, strict=True) if x != y}))
    numbers = [_NUMBER.fullmatch(text) if alone else _NUMBER.search(text) for text in texts]
    if numbers[0] and numbers[1]:
        return ((float(numbers[0][0]), float(numbers[1][0])),)
    return None


def _sizes(shape: re.Match[str]) -> list[int]:
    return [int(part) for part in shape[1].replace(" ", "").split(",") if part]


def _equal(wanted: tuple[tuple[float, float], ...], got: tuple[tuple[float, float], ...]) -> bool:
    return len(wanted) == len(got) and all(
        math.isclose(a, b, rel_tol=1e-6) for pair in zip(wanted, got, strict=True) for a, b in zip(*pair, strict=True)
    )


def _is_dtype(text: str) -> bool:
    return text.strip().removeprefix("torch.").lower() in _DTYPE_NAMES


def _dtype(text: str) -> str:
    for word in re.findall(r"[a-z]+\d*", text.replace("torch.", "").lower()):
        if word in _DTYPE_NAMES:
            return _DTYPES.get(word, word)
    return ""
