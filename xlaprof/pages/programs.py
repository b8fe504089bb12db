"""The list of compiled programs whose texts were kept."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from msgspec import to_builtins
from rich.console import Group, RenderableType
from rich.text import Text

from xlaprof.analysis.places import short
from xlaprof.analysis.views.programs import CompiledProgram, Programs
from xlaprof.pages.page import table
from xlaprof.text.cells import shorten
from xlaprof.text.quantities import duration, plural, size_text
from xlaprof.text.strings import printable

_HEADINGS = ("program", "function", "line", "compiled in", "size", "forms")


def render(found: Programs, log: str, width: int) -> RenderableType:
    """The page, to be printed ``width`` columns wide."""
    rows = [_row(one) for one in found.programs]
    parts: list[RenderableType] = [table(_HEADINGS, rows, width, drop=("size", "function"), text="forms")]
    if found.lost:
        lost = f"! {plural(found.lost, 'text')} not kept: {printable(found.why)}"
        parts.append(Text(f"\n{fill(lost, width, subsequent_indent='  ')}", "yellow"))
    example = shorten(found.programs[0].key, 20)
    parts.append(Text(f"\nxlaprof show {shorten(log, 60, keep_end=True)} {example} prints one of them.", "dim"))
    return Group(*parts)


def _row(one: CompiledProgram) -> list[str]:
    took = duration(one.seconds) if one.seconds is not None else ""
    forms = ", ".join(f"{printable(form)}{f' ({len(one.of(form))})' * (len(one.of(form)) > 1)}" for form in one.forms)
    place = shorten(short(one.place), 40, keep_end=True) if one.place.line else ""
    size = size_text(sum(text.bytes for text in one.texts))
    return [shorten(one.title, 40), shorten(one.name, 30), place, took, size, shorten(forms, 200)]


def program_to_json(one: CompiledProgram) -> dict[str, Any]:
    """A program as ``--json`` prints it."""
    return {
        "source": one.source,
        "program": one.key,
        "function": one.name,
        "place": to_builtins(one.place),
        "seconds": one.seconds,
        "texts": to_builtins(one.texts),
    }
