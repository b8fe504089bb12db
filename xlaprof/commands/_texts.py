"""Texts of compiled programs, as verbs read them: those that a recording has, one of them, two beside each other."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from xlaprof.errors import UserError
from xlaprof.text.strings import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xlaprof.analysis.model import Place
    from xlaprof.analysis.views.programs import CompiledProgram, Programs
    from xlaprof.tui.desk import ProgramText

_MOST = 200_000  # lines of a text on the screen
_WITNESSES = 8  # recorded lines of a file that have to be as they were
_LONGEST_FILE = 1_000_000  # lines


def why_none(log: str, found: Programs) -> str:
    """Why a recording has no texts, and how to get them."""
    again = f"xlaprof run --code -o {log} script.py, or xlaprof.record({log!r}, code=True)"
    if found.lost:
        return f"{log} has no text of a program, for none could be kept: {printable(found.why) or 'not known why'}"
    if not found.compiled:
        return f"nothing was compiled in {log}, or it was recorded without the texts of programs: {again}"
    return f"{log} was recorded without the texts of its programs. With them: {again}"


def text_of(log: str, program: CompiledProgram, form: str) -> str:
    """All texts of a form, one behind the other, with the user's lines."""
    from xlaprof.compiled import kept
    from xlaprof.compiled.lines import with_lines

    read = partial(kept.read, log)
    fx = ""
    if form == "generated":
        with suppress(UserError):  # without it the code is shown without lines
            fx = "\n".join(read(one.file) for one in program.of("fx"))
    texts = [with_lines(form, program.source, read(one.file), fx) for one in program.of(form)]
    return "\n".join(f"{text.rstrip()}\n" for text in texts)


def programs(log: str) -> Programs:
    """The programs of a recording with their texts. Raises :class:`UserError` where it has none."""
    from xlaprof.analysis.views.programs import programs_of
    from xlaprof.collection import no_collection
    from xlaprof.sources import files

    with closing(files.read(log)) as events, no_collection():
        found = programs_of(events)
    if not found.programs:
        raise UserError(why_none(log, found))
    return found


def text_for_screen(
    found: Programs, cwd: str, log: str, program: CompiledProgram, form: str, compared: bool
) -> ProgramText:
    """A text with the user's line of each of its lines. ``compared``: without what is different in every program."""
    from xlaprof.analysis.model import Place
    from xlaprof.compiled.beside import comparable
    from xlaprof.compiled.lines import places
    from xlaprof.tui.desk import ProgramText

    text = text_of(log, program, form)
    lines = (comparable(form, text) if compared else text).splitlines()
    shown = lines[:_MOST]
    if len(lines) > _MOST:
        shown.append(f"... and {len(lines) - _MOST:,} more lines: xlaprof show {log} {program.title} --form '{form}'")
    paths = {PurePath(one.file).name: one.file for one in (*found.lines, program.place)}  # texts may name no folder
    named = [at and (at[0] if "/" in at[0] else paths.get(at[0], at[0]), at[1]) for at in places(shown)]
    known = {file: _lines_of(file, found.lines, cwd) for file in {at[0] for at in named if at is not None}}
    return ProgramText(tuple(shown), tuple(at and Place(*at, code=known[at[0]].get(at[1], "")) for at in named))


def _lines_of(file: str, recorded: Sequence[Place], cwd: str) -> dict[int, str]:
    """All lines of a file whose recorded ones still are as they were; else these alone."""
    from itertools import islice

    from xlaprof.pages.source import source

    lines: dict[int, str] = {}
    for witness in islice((one for one in recorded if one.file == file), _WITNESSES):
        found = source(witness, cwd, _LONGEST_FILE)
        if found.state != "recorded":
            return {one.line: one.code for one in recorded if one.file == file}
        lines = lines or {one.line: one.code.strip() for one in found.lines}
    return lines
