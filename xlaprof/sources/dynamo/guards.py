"""The text of a guard that failed, parsed: its subject, the old and the new value, the line that made it.

The text has both values of tensors, but only the old one of Python values: the new one is the value of the expression
``source`` in the frame (:mod:`.process`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xlaprof.recording.stacks import RawFrame

from .breaks import frames_in, user_name


class Guard(NamedTuple):
    """A guard that failed."""

    kind: str  # as of :class:`xlaprof.events.Guard`
    subject: str  # as the user knows it: "x", "self.k", "lst", "grad_mode"
    old: str
    new: str  # "" where the text does not have it
    text: str  # the guard itself
    source: str = ""  # expression for the new value
    dim: int = -1  # of sizes and strides
    frames: tuple[RawFrame, ...] = ()  # where the guard was made, innermost first, libraries included
    hint: str = ""  # PyTorch's
    ident: int = 0  # id() of the object that was expected, of kind "object"
    handed: bool = False  # on what a graph break hands over to what follows it


class Reason(NamedTuple):
    """Why one version that was compiled before did not fit."""

    against: str  # the compile id of that version
    guard: Guard


_AGAINST = re.compile(r"^(!?\d+(?:/\d+)*): ")
_COMMENT = re.compile(r"\s*  #\s")  # code  # source line  # file:line in function
_LOCAL = re.compile(r"\bL\['(\w+)'\]")
#: a line of PyTorch's own, which made the guard, stands in parentheses: alone, or behind the program's
_AT = re.compile(r"# (?P<file>(?!\()[^#\n]*?):(?P<line>\d+) in (?P<func>[\w.<>]+)")
_HINT = re.compile(r"\(HINT: (.*)\)\s*$", re.DOTALL)

_TENSOR = re.compile(
    r"^tensor '(?P<source>.*)' (?P<what>size|stride|rank|dtype|dispatch key set|device|Tensor device index)"
    r" mismatch(?: at index (?P<dim>\d+))?[.:]? [Ee]xpected (?P<old>.*?), (?:but got|actual) (?P<new>.*?)"
    r"(?:\. (?P<hint>Guard failed .*))?$",
    re.DOTALL,
)
_GRAD = re.compile(r"^tensor '(?P<source>.*)' requires_grad mismatch\. expected requires_grad=(?P<old>\d)")
_KINDS = {
    "size": "shape",
    "stride": "stride",
    "rank": "rank",
    "dtype": "dtype",
    "dispatch key set": "dispatch",
    "device": "device",
    "Tensor device index": "device",
}
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_NOT_TENSOR = re.compile(r"^expected type of '(?P<source>.*?)' to be a tensor type, .*?found <class '(?P<new>[^']+)'>")
_GLOBAL = re.compile(r"^GLOBAL_STATE changed: (?P<what>.*)$")
_TYPE = re.compile(r"^___check_type_id\((?P<source>.*), \d+\)(?:, type=<(?:class|enum) '(?P<old>[^']+)'>)?")
_OBJECT = re.compile(r"^___check_obj_id\((?P<source>.*), (?P<ident>\d+)\)(?:, type=<(?:class|enum) '(?P<old>[^']+)'>)?")
_KEYS = re.compile(r"^(?P<no>not )?___dict_contains\((?P<key>'[^']*'|[^,]*), (?P<source>.*)\)$")
_LENGTH = re.compile(r"^len\((?P<source>.*)\) (?P<sign>==|!=|>=) (?P<old>\d+)$")
_HASATTR = re.compile(r"^hasattr\((?P<source>.*), '(?P<name>[^']*)'\) == (?P<old>True|False)$")
_EMPTY = re.compile(r"^not (?P<source>[\w.\[\]'\"()]+)$")
_IS = re.compile(r"^(?P<source>.+?) is (?P<no>not )?(?P<old>None|True|False|\.\.\.)$")
_SAME = re.compile(r"^(?P<one>[^\W\d][\w.\[\]']*) is (?P<other>[^\W\d][\w.\[\]']*)$")  # two inputs
_EQUAL = re.compile(r"^(?P<source>.+) == (?P<old>.+)$", re.DOTALL)
_SIZE = re.compile(
    r"(?P<tensor>[^\s()%*+/<>=-]+(?:\[[^]]*\])*)\.(?:(?:size|stride)\(\)\[(?P<dim>\d+)\]|storage_offset\(\))"
)
_DUPLICATE = re.compile(r"^Duplicate tensors? found:?\s*(?P<what>.*)", re.DOTALL)
_FREED = re.compile(r"invalidated because (?P<source>\S+) got deallocated")
#: Dynamo's names for what lies on Python's stack where a function goes on behind a graph break
LEFT_BEHIND = re.compile(r"___stack\d+")


def parse_reason(text: str) -> Reason:
    """One reason; an unknown one is a guard of kind "guard" with its text."""
    found = _AGAINST.match(text)
    against = found[1] if found else ""
    body = text[found.end() :] if found else text
    body, _, stack = body.partition("\nUser stack trace:\n")
    return Reason(against, parse_guard(body, frames_in(stack)))


def parse_guard(text: str, frames: tuple[RawFrame, ...] = ()) -> Guard:
    """One guard, with or without the comment that names its line."""
    text = text.strip()
    hint = _HINT.search(text)
    code = _LOCAL.sub(r"\1", _COMMENT.split(text, maxsplit=1)[0].strip())
    at = None if frames else _AT.search(text)
    if at is not None:
        frames = (RawFrame(at["file"].strip(), int(at["line"]), user_name(at["func"])[0]),)
    guard = _of_tensor(code) or _of_state(code) or _of_value(code) or Guard("guard", "", "", "", code)
    handed = LEFT_BEHIND.fullmatch(guard.source) is not None
    return guard._replace(
        text=code, frames=frames, hint=" ".join(hint[1].split()) if hint else guard.hint, handed=handed
    )


def _of_tensor(code: str) -> Guard | None:
    if found := _GRAD.match(code):
        old = found["old"] != "0"
        return Guard("requires_grad", subject(found["source"]), str(old), str(not old), code, found["source"])
    if found := _TENSOR.match(code):
        kind, source = _KINDS.get(found["what"], "guard"), found["source"]
        old, new = found["old"].strip(), found["new"].strip().rstrip(".")
        if kind == "dtype":
            old, new = _DTYPES.get(old, old), _DTYPES.get(new, new)
        dim = int(found["dim"]) if found["dim"] else -1
        return Guard(kind, subject(source), old, new, code, source, dim, hint=found["hint"] or "")
    if found := _NOT_TENSOR.match(code):
        return Guard("type", subject(found["source"]), "Tensor", _class(found["new"]), code, found["source"])
    if found := _DUPLICATE.match(code):
        names = ", ".join(map(subject, re.findall(r"[\"']([^\"']+)[\"']", found["what"])))
        return Guard("aliasing", names, "different tensors", "the same tensor", code)
    return None


def _of_state(code: str) -> Guard | None:
    if found := _GLOBAL.match(code):
        return Guard("mode", " ".join(found["what"].split()), "", "", code)
    if code.startswith("BACKEND_MATCH"):
        return Guard("backend", "the backend", "the backend it was compiled with", "another function", code)
    if found := _FREED.search(code):
        return Guard("freed", subject(found["source"]), "alive", "freed", code, found["source"])
    return None


def _of_value(code: str) -> Guard | None:
    if found := _SIZE.search(code):
        return Guard("size bound", subject(found["tensor"]), code, "", code, found[0], int(found["dim"] or -1))
    if found := _TYPE.match(code):
        return Guard("type", subject(found["source"]), _class(found["old"] or ""), "", code, f"type({found['source']})")
    if found := _OBJECT.match(code):
        guard = Guard("object", subject(found["source"]), _class(found["old"] or ""), "", code, found["source"])
        return guard._replace(ident=int(found["ident"]))
    if found := _KEYS.match(code):
        old, new = ("absent", "present") if found["no"] else ("present", "absent")
        return Guard("keys", f"{subject(found['source'])}[{found['key']}]", old, new, code)
    if found := _LENGTH.match(code):
        old = found["old"] if found["sign"] == "==" else f"{found['sign']} {found['old']}".replace("!= 0", "not empty")
        return Guard("length", subject(found["source"]), old, "", code, f"len({found['source']})")
    if found := _HASATTR.match(code):
        old, new = ("set", "not set") if found["old"] == "True" else ("not set", "set")
        return Guard("attribute", f"{subject(found['source'])}.{found['name']}", old, new, code)
    if found := _EMPTY.match(code):
        return Guard("length", subject(found["source"]), "0", "", code, f"len({found['source']})")
    if found := _IS.match(code):
        old = f"not {found['old']}" if found["no"] else found["old"]
        return _value(found["source"], old, code)
    if found := _SAME.match(code):
        names = f"{subject(found['one'])}, {subject(found['other'])}"
        return Guard("aliasing", names, "the same tensor", "different tensors", code)
    if found := _EQUAL.match(code):
        return _value(found["source"], found["old"], code)
    return None


def _value(source: str, old: str, code: str) -> Guard:
    name = subject(source)
    if re.fullmatch(r"-?\d+\.\d{8,}(?:e[+-]?\d+)?", old):
        old = f"{float(old):.8g}"
    if source.endswith(".training"):
        return Guard("training", name.removesuffix(".training") or name, old, "", code, source)
    if source.endswith(".requires_grad"):
        return Guard("requires_grad", name.removesuffix(".requires_grad"), old, "", code, source)
    return Guard("value", name, old, "", code, source)


_INNER = (
    (re.compile(r"\bL\['(\w+)'\]"), r"\1"),
    (re.compile(r"\.__dict__\['(\w+)'\]"), r".\1"),
    (re.compile(r"(?:\._modules|\._parameters|\._buffers)(?:\['([\w.]+)'\]|\.(\w+))"), r".\1\2"),
    (re.compile(r"\._modules(?=\)|$)"), ""),  # what a module holds, a ModuleList or ModuleDict, say
    (re.compile(r"\bkwargs\['(\w+)'\]"), r"\1"),
    (re.compile(r"\bG\['__import_(\w+)'\]"), r"\1"),
    (re.compile(r"\bG\['(\w+)'\]"), r"\1"),
    (re.compile(r"\.__closure__\[\d+\]\.cell_contents"), ""),
    (re.compile(r"\.__code__$"), ""),
    (re.compile(r"list\(dict\.keys\((.*?)\)\)"), r"the keys of \1"),
    (LEFT_BEHIND, "the value that was read"),
)


def subject(source: str) -> str:
    """A guard's expression as the user would write it: ``self.__dict__['_modules']['l']`` is ``self.l``."""
    name = re.sub(r"\.__dict__\['(_modules|_parameters|_buffers)'\]", r".\1", source)
    for pattern, instead in _INNER:
        name = pattern.sub(instead, name)
    return name.replace("_dot_", ".")


def _class(name: str) -> str:
    """``torch.nn.parameter.Parameter`` is ``Parameter``."""
    return name.rpartition(".")[2]
