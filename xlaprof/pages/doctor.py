"""What ``xlaprof doctor`` found, for people."""

from __future__ import annotations

import os

from rich.console import Group, RenderableType
from rich.text import Text

from xlaprof.doctor.layers import Diagnosis, Seen, figures, results
from xlaprof.pages.page import paragraph, table, title
from xlaprof.text.quantities import plural

_STYLE = {"same numbers": "bold green", "runs": ""}


def render(diagnosis: Diagnosis, width: int) -> RenderableType:
    """The page, to be printed ``width`` columns wide."""
    rows: list[tuple[str | Text, ...]] = []
    for one in diagnosis.layers:
        result = results(one)
        in_all, compiling, call, memory = figures(one)
        rows.append((one.layer, Text(result, _STYLE.get(result, "bold red")), in_all, compiling, call, memory))
    parts: list[RenderableType] = [
        title("Layers", width),
        table(("layer", "result", "in all", "compiling", "a call", "memory"), rows, width, text="layer"),
        Text(),
    ]
    parts += [paragraph("", line, width, "dim", indent="") for line in _notes(diagnosis)]
    parts.append(title("Verdict", width))
    for verdict in diagnosis.verdicts:
        parts += [
            paragraph("", verdict.text, width, indent=""),
            paragraph("Fix: ", verdict.remedy, width, "bold green"),
        ]
    if not diagnosis.verdicts:
        parts.append(Text("Nothing is at fault: the program does the same under each of these layers.", "bold green"))
    made = diagnosis.reproducer
    if made is not None:
        file = os.path.relpath(made.file)
        fails = {"yes": "runs alone and fails", "no": "does not fail alone", "not in time": "did not end in time"}
        remark = f"; {made.remark}" if made.remark else ""
        text = f"{file} has {plural(made.operations, 'operation')} and {fails[made.fails]}{remark}."
        parts.append(paragraph("Reproducer: ", text, width, indent=""))
    parts.append(Text(f"All that was written is in {os.path.relpath(diagnosis.folder)}.", "dim"))
    return Group(*parts)


def _notes(diagnosis: Diagnosis) -> list[str]:
    notes = [
        _unchecked(one) for one in diagnosis.layers if one.graphs and one.unchecked and one.layer != 'backend="eager"'
    ]
    if diagnosis.unsteady:
        notes.append(
            "The program returns something else each time, so only its graphs were compared: seed what it draws."
        )
    return notes


def _unchecked(one: Seen) -> str:
    why = "; ".join(one.unchecked)
    return f"{one.layer}: {one.graphs - one.checked} of {plural(one.graphs, 'graph')} could not be compared ({why})."
