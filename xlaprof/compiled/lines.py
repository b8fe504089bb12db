"""The user's line beside each line of a compiled program's text, as a comment, wherever the text itself says it.

HLO has it in its tables of stack frames; a program of the embedded runtime has it in the names of operations, because
it is lowered at a barrier, and the stack there is the barrier's. Inductor's code names nodes of the FX graph, which has
the lines. The other forms have them beside the operations already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xlaprof.text.strings import file_line

from . import hlo

#: "train.py:31" in a path of scopes
_SCOPE = re.compile(r"(?:^|[/(])([^/()\"\s]+:\d+)(?=[/)\"]|$)")
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_NAMED = re.compile(r'^"((?:[^"\\]|\\.)*)"')
_REFERENCE = re.compile(r" loc\((#loc\d*|unknown|\"(?:[^\"\\]|\\.)*\")\)")
_FILE = re.compile(r"^\s*# File: (.*):(\d{1,18}) in ")
_NODE = re.compile(r"^\s*(\w+)(?:: \"[^\"]*\")? = ")
_SOURCES = re.compile(r"^\s*(?:#|//).*Source Nodes: \[([^\]]*)\]")
_MANY = 6  # lines named beside one line


def with_lines(form: str, source: str, text: str, fx: str = "") -> str:
    """``text`` with comments. ``fx``: the FX graph of the same program, which generated code refers to."""
    if form == "hlo":
        return "".join(_of_hlo(text, source == "xla"))
    if form == "stablehlo":
        return "".join(_of_stablehlo(text))
    if form == "generated":
        return "".join(_of_generated(text, fx))
    return text


def _of_hlo(text: str, scoped: bool) -> Iterator[str]:
    """The tables are left out: the comments say what they do."""
    tables = hlo.Tables()
    empty = False
    for line in text.split("\n"):
        if tables.take(line):
            continue
        if empty and not line:
            continue
        empty = not line
        at = ""
        if hlo.INSTRUCTION.match(line):
            at = scope(hlo.op_name(line)) if scoped else _innermost(tables, line)
        yield f"{line}  // {at}\n" if at else f"{line}\n"


def _innermost(tables: hlo.Tables, line: str) -> str:
    frames = tables.frames(line)
    frame = next(iter(hlo.users(frames) or frames), None)
    return file_line(frame.file, frame.line) if frame is not None else ""


def scope(name: str) -> str:
    """The innermost line of code in a path of scopes: "train.py:31" of "Decoder/Block/train.py:31/dot_general"."""
    found = _SCOPE.findall(name)
    return found[-1] if found else ""


def _of_stablehlo(text: str) -> Iterator[str]:
    """The locations behind the program are left out."""
    named = {}
    lines = text.split("\n")
    for line in lines:
        if (found := _LOCATION.match(line)) and (name := _NAMED.match(found[2])):
            named[found[1]] = scope(name[1])
    for line in lines:
        if _LOCATION.match(line):
            continue
        references = _REFERENCE.findall(line)
        at = named.get(references[-1], "") if references else ""
        line = _REFERENCE.sub("", line)
        yield f"{line}  // {at}\n" if at else f"{line}\n"


def _of_generated(text: str, fx: str) -> Iterator[str]:
    """The lines of the nodes that a comment of Inductor's names."""
    nodes = dict(_nodes(fx))
    for line in text.split("\n"):
        yield f"{line}\n"
        if found := _SOURCES.match(line):
            at = list(dict.fromkeys(nodes[name] for name in re.split(r"[,\s]+", found[1]) if name in nodes))
            more = f" and {len(at) - _MANY} more" if len(at) > _MANY else ""
            if at:
                indent = line[: len(line) - len(line.lstrip())]
                mark = line.lstrip()[:2].rstrip()
                yield f"{indent}{mark} {', '.join(at[:_MANY])}{more}\n"


def _nodes(fx: str) -> Iterator[tuple[str, str]]:
    """Names of nodes and their lines: a comment says that of those behind it."""
    at = ""
    for line in fx.split("\n"):
        if place := _FILE.match(line):
            at = file_line(place[1], int(place[2]))
        elif at and (node := _NODE.match(line)):
            yield node[1], at


#: "  // train.py:31" at the end of a line; "# /home/ada/train.py:9:8 (h)" of JAX's; "# train.py:3, train.py:4"
_BESIDE = re.compile(r"(?://|#) ([^,#]*?[^,#:\s]):(\d{1,9})(?::\d+)?(?: \(.*\)|(?:, .*)| and \d+ more)?$")
_LOOKED_AT, _SHORT = 2_000, 400  # characters of a line: what it holds may be hostile
_LOCATED = re.compile(r"\blocation=(?:[^\s,@]*@)?([^,]+?):(\d{1,9})(?=,|\s|$)")


def places(lines: Sequence[str]) -> Iterator[tuple[str, int] | None]:
    """File and line of the user's that each line of a text, as :func:`with_lines` gives it, says; None where none does.

    A comment on a line of its own is about those below it, up to the next.
    """
    above: tuple[str, int] | None = None
    for line in lines:
        found = _FILE.match(line[:_LOOKED_AT]) or _LOCATED.search(line[-_LOOKED_AT:]) or _BESIDE.search(line[-_SHORT:])
        place = (found[1], int(found[2])) if found is not None else None
        if line.lstrip().startswith(("#", "//")):
            above = place if place is not None else None if _SOURCES.match(line) else above
        yield place or above
