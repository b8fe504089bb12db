"""Hold recorded runs to a budget, for CI.

    xlaprof check run.log --max-recompiles 0 --after-step 10
    xlaprof check run.log --max-idle 10% --max-transfers-per-step 0 --no-fallback
    xlaprof check run.rank*.log --max-step-time 50ms --github

Exit code 0 if every log keeps the budget, 1 with the lines to blame if one does not, 2 if that cannot be decided: the
log has nothing of what a limit asks for (idle time without a device), says that events were dropped (a full disk), or
has damaged lines (--allow-dropped lets such logs pass). docs/ci.md says what each limit counts.

Limits may also stand in the table [tool.xlaprof] of pyproject.toml, the nearest one at or above the current directory
that has it. Limits on the command line override them:

    [tool.xlaprof]
    max-recompiles = 0
    after-step = 10
    max-idle = "10%"
    no-fallback = true
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xlaprof.analysis.gates.budget import Damage, Verdict, judge
from xlaprof.analysis.gates.limits import LIMITS, Budget, budget
from xlaprof.collection import no_collection
from xlaprof.errors import UserError
from xlaprof.events import AnyEvent
from xlaprof.sources import files
from xlaprof.text.output import annotate, say, write, write_json

BROKEN = 1  # exit code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", metavar="LOG", nargs="+", help="a recording; each of several is held to the budget")
    group = parser.add_argument_group("limits")
    for limit in LIMITS:
        flag = f"--{limit.name.replace('_', '-')}"
        if limit.sort in ("flag", "severity"):
            group.add_argument(flag, action="store_true", help=_HELP.get(limit.name, limit.help))
        elif limit.sort == "names":
            group.add_argument(flag, action="append", metavar=limit.metavar, help=limit.help)
        else:
            group.add_argument(flag, metavar=limit.metavar, help=limit.help)
    group.add_argument(
        "--fail-on", choices=["low", "medium", "high"], metavar="SEVERITY", help="no finding of this severity or worse"
    )
    parser.add_argument("--config", metavar="FILE", help="take limits from [tool.xlaprof] of this file")
    parser.add_argument("--no-config", action="store_true", help="take limits from the command line only")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/ci.md)")
    parser.add_argument("--github", action="store_true", help="print annotations for GitHub's pull requests")


@no_collection()
def run(args: argparse.Namespace) -> int:
    allowed, config = _budget(args)
    verdicts = [_judge(path, allowed) for path in args.logs]
    for verdict in verdicts:
        for warning in verdict.warnings:
            say(f"{verdict.path}: {warning}")
    from xlaprof.pages import verdict as verdict_page
    from xlaprof.pages.json import text

    if args.json:
        write_json(text(verdict_page.to_json(verdicts, allowed, config)))
    else:
        write(verdict_page.page(verdicts))
    if args.github:
        root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
        annotate(verdict_page.github(verdicts, root), sys.stderr if args.json else sys.stdout)
    return 0 if all(verdict.kept for verdict in verdicts) else BROKEN


def _judge(path: str, allowed: Budget) -> Verdict:
    damage = Damage()

    def read() -> Iterable[AnyEvent]:
        nonlocal damage
        reader = files.read(path)
        yield from reader
        damage = Damage(reader.notes, reader.skipped)

    return judge(read, allowed, path, lambda: damage)


def _budget(args: argparse.Namespace) -> tuple[Budget, str | None]:
    """The limits of the command line over those of the file, and the path of that file if there is one."""
    given = {limit.name: getattr(args, limit.name) for limit in LIMITS}
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    if args.fail_on:
        given["no_findings"] = args.fail_on
    here = budget(given)
    file, table = (None, None) if args.no_config else _config(args.config)
    there = budget(table, f"{file} [tool.xlaprof]") if table is not None else Budget()
    allowed = here.over(there)
    if allowed.empty:
        raise UserError(
            "nothing to check: name a limit (--max-recompiles 0, ... see xlaprof check --help) "
            "or write it under [tool.xlaprof] in pyproject.toml"
        )
    return allowed, file


def _config(given: str | None) -> tuple[str | None, dict[str, Any] | None]:
    """The file with limits, and its table."""
    if given is not None:
        table = _table(Path(given))
        if table is None:
            raise UserError(f"{given} has no table [tool.xlaprof]: write limits there, or leave --config out")
        return given, table
    here = Path.cwd()
    for directory in (here, *here.parents):
        file = directory / "pyproject.toml"
        if file.is_file() and (table := _table(file)) is not None:
            return str(file), table
    return None, None


def _table(file: Path) -> dict[str, Any] | None:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    try:
        tools = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not TOML: {error}") from None
    table = tools.get("xlaprof") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UserError(f"{file}: [tool.xlaprof] should be a table of limits")
    return table


_HELP = {"no_findings": "no finding at all"}
