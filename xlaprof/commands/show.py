"""Show what compilers made of a program: code, graphs, HLO, with the user's lines.

    xlaprof run --code train.py
    xlaprof show run.log
    xlaprof show run.log 3
    xlaprof show run.log 1/0 --form fx
    xlaprof show run.log 3 --diff 4

Without PROGRAM it lists what was compiled. PROGRAM is a number of the embedded runtime's or of JAX's, a compile id of
torch.compile, or one of these with its source, where several have it: jax:3. Printed is the form that says most, the
code that Inductor generated or XLA's HLO; --form prints another, --diff how the same form of another program differs.
A comment names the user's line beside what was made of it. The texts lie in run.code/ beside run.log, where only
'xlaprof run --code' and xlaprof.record(path, code=True) put them.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from xlaprof.collection import no_collection
from xlaprof.commands._texts import text_of, why_none
from xlaprof.errors import UserError
from xlaprof.text.output import say, write, write_json
from xlaprof.text.strings import clip, did_you_mean, enumerated, printable

if TYPE_CHECKING:
    from xlaprof.analysis.views.programs import CompiledProgram, Programs

_LONGEST_DIFF = 40_000  # lines of both: it takes a time that grows with their product


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", help="the recording: run.log")
    parser.add_argument("program", metavar="PROGRAM", nargs="?", help="a program of the list: 3, 1/0, jax:3")
    parser.add_argument("--form", metavar="NAME", help="another form of it: hlo, stablehlo, ir, fx, 'aot forward'...")
    parser.add_argument("--diff", metavar="OTHER", help="how another program's text differs from this one's")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/show.md)")


@no_collection()
def run(args: argparse.Namespace) -> int:
    from xlaprof.analysis.views.programs import programs_of
    from xlaprof.sources import files

    if args.program is None and (args.form or args.diff):
        raise UserError(f"which program? xlaprof show {args.log} lists them; name one before --form and --diff")
    with closing(files.read(args.log)) as events:
        found = programs_of(events)
    if not found.programs:
        raise UserError(why_none(args.log, found))
    if args.program is None:
        _list(found, args.log, args.json)
        return 0
    program = choose(found, args.program, args.log)
    form = _form(program, args.form)
    text = text_of(args.log, program, form)
    other = choose(found, args.diff, args.log) if args.diff is not None else None
    if other is not None:
        text = _diff(program, other, form, text, text_of(args.log, other, _form(other, form)))
    if args.json:
        from xlaprof.pages.programs import program_to_json

        shown = {**program_to_json(program), "form": form, "text": text}
        write_json(_as_json(shown if other is None else {**shown, "other": program_to_json(other)}))
        return 0
    if args.form is None and other is None and (others := [one for one in program.forms if one != form]):
        say(f"{form} of {program.title}; --form prints {enumerated(others, 9)}")
    if other is not None and not text:
        say(f"{form} of {program.title} and {other.title} is the same")
    write(text)
    return 0


def choose(found: Programs, wanted: str, log: str) -> CompiledProgram:
    """The program that ``wanted`` names. Raises :class:`UserError`."""
    named = [one for one in found.programs if wanted in (one.key, one.title)]
    if len(named) == 1:
        return named[0]
    if named:
        titles = enumerated([printable(one.title) for one in named], 5)
        raise UserError(f"'{wanted}' is a program of several sources in {log}: name one of {titles}")
    known = [printable(one.title) for one in found.programs]
    hint = did_you_mean(wanted, [printable(one.key) for one in found.programs[:1_000]])
    hint = f"{hint} " if hint else ""
    raise UserError(
        f"no program '{wanted}' with a text in {log}: {hint}There are {clip(enumerated(known, 12), 400)} (xlaprof show)"
    )


def _form(program: CompiledProgram, wanted: str | None) -> str:
    if wanted is None:
        return program.forms[0]
    form = wanted.replace("_", " ").replace("-", " ").lower()
    for known in program.forms:
        if form == known:
            return known
    forms = enumerated([clip(printable(one), 40) for one in program.forms], 12)
    raise UserError(f"{clip(printable(program.title), 80)} has no form '{wanted}'; it has {forms}")


def _diff(one: CompiledProgram, other: CompiledProgram, form: str, text: str, others: str) -> str:
    from difflib import unified_diff

    from xlaprof.compiled.beside import comparable

    mine, theirs = comparable(form, text).splitlines(), comparable(form, others).splitlines()
    if len(mine) + len(theirs) > _LONGEST_DIFF and mine != theirs:
        raise UserError(
            f"{form} of {one.title} and {other.title} has {len(mine) + len(theirs):,} lines, too many to be compared "
            f"here (at most {_LONGEST_DIFF:,}): write both into files, and run diff -u"
        )
    lines = unified_diff(mine, theirs, f"{one.title} {form}", f"{other.title} {form}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _list(found: Programs, log: str, as_json: bool) -> None:
    from xlaprof.pages import programs

    if as_json:
        shown = list(map(programs.program_to_json, found.programs))
        write_json(_as_json({"programs": shown, "lost": found.lost, "why": found.why}))
        return
    from xlaprof.pages.page import show_page

    show_page(partial(programs.render, found, log))


def _as_json(shown: dict[str, object]) -> str:
    from xlaprof.pages.json import text

    return text({"schema": 1, **shown})
