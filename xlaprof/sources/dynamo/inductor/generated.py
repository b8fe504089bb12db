"""What inductor's code for a graph runs: kernels that it generated, with what each fuses, and calls of libraries.

A pure function of the code, which the trace hands over also where a graph comes from inductor's cache. A kernel's name
and the comment above its definition name the ATen operations that it was made of; kernels in C++ have the name alone.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Container
from typing import Any, NamedTuple

from xlaprof.events import Kernel

_KEPT = 256  # kernels, and functions of libraries, that are told by name
_OPS = 64  # operations that are told of a kernel
_LONGEST = 200  # characters of a name
_TEXTS = re.compile(r"'''.*?'''", re.DOTALL)  # the texts of kernels
_LINES = re.compile(
    r"^# .*Source Nodes: .*Original ATen: \[(?P<ops>.*)\]$"
    r"|^(?P<kernel>\w+) = async_compile\.\w+\("
    r"|^[ \t]+(?:[\w, ()]+ = )?"
    r"(?P<library>extern_kernels|torch\.ops|aten|inductor_ops|_quantized)\.(?P<function>[\w.]+)\("
    r"|^[ \t]+\S.*\.copy_\(.*, (?:True|False)\)$(?P<copy>)"
    r"|^[ \t]+(?P<called>\w+)(?:\.run)?\(",
    re.MULTILINE,
)
#: how the names of kernels begin that fuse operations: "cpp_fused_cos_sin_0", "triton_poi_fused_cos_sin_0"
_FUSED = re.compile(r"^(?:cpp|triton|cuda|mps|[a-z]+)(?:_[a-z]+)?_fused_(?P<words>.+)_\d+$")
#: calls that compute nothing
_NO_WORK = re.compile(r"(_reinterpret_tensor|_alloc_from_pool|wait_tensor|resize_storage_bytes_|set_)\b")
_OVERLOAD = re.compile(r"\.(?:default|out|[A-Z]\w*)$")


class Generated(NamedTuple):
    """The code of one graph, as often as a call of it runs each line: branches and loops count as written."""

    backward: bool
    launches: int  # calls of generated kernels
    calls: int  # calls of libraries, and of operators that inductor has no code for
    copies: int  # of tensors from one device to another
    kernels: tuple[Kernel, ...]  # as they are first called; the first :data:`_KEPT`
    library: dict[str, int]  # "mm" -> calls, most first; the first :data:`_KEPT`


def read(text: str, known: Container[str]) -> Generated | None:
    """What this code runs; None of code in another form. ``known``: names of ATen's operators."""
    code = _TEXTS.sub("", text)
    if not re.search(r"^\s*def (?:call|partition_\d+)\(", code, re.MULTILINE):
        return None
    defined: dict[str, list[str]] = {}  # kernel -> its operations
    called, library, copies = Counter[str](), Counter[str](), 0
    above: list[str] = []
    for found in _LINES.finditer(code):
        kind, name = found.lastgroup, found[found.lastgroup or 0]
        if kind == "ops":
            above = [one.partition(".")[2] or one for one in name.split(", ") if one]
        elif kind == "kernel":
            defined[name] = above or operations(name, known)
            above = []
        elif kind == "function":
            if not _NO_WORK.search(name):
                library[_short(found["library"], name)] += 1
        elif kind == "copy":
            copies += 1
        elif name in defined:
            called[name] += 1
    kernels = (
        Kernel(name[:_LONGEST], [op[:_LONGEST] for op in defined[name][:_OPS]], count)
        for name, count in list(called.items())[:_KEPT]
    )
    backward = "_backward']" in text.partition("\n")[0]
    most = {name[:_LONGEST]: count for name, count in library.most_common(_KEPT)}
    return Generated(backward, called.total(), library.total(), copies, tuple(kernels), most)


def _short(library: str, function: str) -> str:
    """The name of an operator without its overload, and without the namespace that nearly all of them are in."""
    name = _OVERLOAD.sub("", function) if library != "extern_kernels" else function
    return name.removeprefix("aten.") if library == "torch.ops" else name


def operations(kernel: str, known: Container[str]) -> list[str]:
    """The operations in a kernel's name: distinct names in alphabetical order, joined by what they may have in them.

    Of several ways to read it the one with the fewest names; empty where a part of it is no known name.
    """
    found = _FUSED.match(kernel)
    return list(_split(tuple(found["words"].split("_")), known) or ()) if found else []


def _split(words: tuple[str, ...], known: Container[str]) -> tuple[str, ...] | None:
    #: of the words from here on, by the name before: the names
    ways: dict[tuple[int, str], tuple[str, ...] | None] = {}

    def split(begin: int, before: str) -> tuple[str, ...] | None:
        if begin == len(words):
            return ()
        if (begin, before) not in ways:
            best: tuple[str, ...] | None = None
            for end in range(len(words), begin, -1):
                name = "_".join(words[begin:end])
                if name > before and name in known:
                    rest = split(end, name)
                    if rest is not None and (best is None or len(rest) + 1 < len(best)):
                        best = name, *rest
            ways[begin, before] = best
        return ways[begin, before]

    return split(0, "")


class _Known:
    """The operators that PyTorch has looked up so far, among them all of graphs: asking for one makes none."""

    def __contains__(self, name: object) -> bool:
        ops: Any = getattr(sys.modules.get("torch"), "ops", None)
        return any(name in vars(getattr(ops, space, ops)) for space in ("aten", "prims"))


KNOWN = _Known()
