"""How good the diagnosis is: precision and recall over the zoo, programs whose mistakes an expert wrote down.

    nice python benchmarks/diagnosis.py [NAME ...] [--programs DIR] [--json] [--logs DIR [--again]] [--page FILE]

Each program of ``tests/zoo`` (or DIR: ``tests/zoo_jax``, ``tests/zoo_compile``) and its fixed version run under
``xlaprof run --json``, one after the other, in a process of their own, as a user runs them. A finding counts when kind,
line and change are those of the program's ``expected.json``; the rule, word for word, is the text of
``tests/zoo/truth.py``. In short: numbers and shapes of a change have to be the truth's, changes in words have to be of
the same sort, and anything that is reported beside the truth, on a clean or on a fixed program, is a false alarm.

``recall`` is the share of truths that were found, ``precision`` the share of findings that are right. The exit code is
1 below a recall of 95 %, with a false alarm, or when a program failed. ``--logs`` keeps the recordings, and with
``--again`` the recordings kept there are analysed again instead of running the programs; without ``--logs`` those that
the repository keeps in DIR/recordings, where ``--keep`` puts new ones. ``--page`` writes ``docs/diagnosis.md``, and
``--section`` the part of it on another zoo.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.zoo import recordings  # noqa: E402
from tests.zoo.truth import Score, Story, Truth, score, stories, wrong  # noqa: E402

#: scores of first runs, kept by hand: nobody can repeat a first run
UNSEEN = Path(__file__).parent / "unseen.md"
#: the other zoos, each a folder of ``tests`` and a part of the page: title, and whose programs they are
OTHERS = {
    "zoo_jax": ("The zoo of JAX's programs", "programs of jax, flax, equinox and optax"),
    "zoo_compile": ("The zoo of torch.compile", "programs of torch.compile, alone and under libraries"),
}
RECALL = 0.95
_LIMIT_S = 600


class Failed(Exception):
    """The program did not run to its end, or left no report."""


class Result(NamedTuple):
    """One program's score, or why there is none."""

    story: Story
    score: Score
    findings: list[dict[str, Any]]
    failed: str = ""


class Rates(NamedTuple):
    """Of one kind, or of all."""

    truths: int
    met: int
    repeated: int
    alarms: int

    @property
    def recall(self) -> float:
        return self.met / self.truths if self.truths else 1.0

    @property
    def precision(self) -> float:
        right = self.met + self.repeated
        return right / (right + self.alarms) if right + self.alarms else 1.0


#: their mistake is one by PyTorch/XLA's rules alone: by default a learning rate of 0 is no graph of its own
_STRICT = {"warmup_lr_zero", "adamw_warmup_python"}


def part_on(zoo: str) -> Path:
    """Where ``--section`` puts the part of the page on one of the other zoos."""
    return Path(__file__).parent / f"{zoo}.md"


def report(program: Path, log: Path, *, again: bool = False) -> dict[str, Any]:
    """The JSON report of one run of ``program``, recorded in ``log``."""
    if again:
        command = ["report", "--json", str(log)]
    else:
        for file in (log, log.with_suffix(".json")):
            file.unlink(missing_ok=True)
        strict = ["--strict-parity"] if program.stem in _STRICT else []
        command = ["run", *strict, "--json", "-o", str(log), str(program)]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-m", "xlaprof", *command],
            capture_output=True, text=True, check=False, cwd=elsewhere, timeout=_LIMIT_S,
            env={"PJRT_DEVICE": "CPU", **os.environ, "XLAPROF_CACHE_DIR": "off"},
        )  # fmt: skip
    written = log.with_suffix(".json")
    text = done.stdout if again else written.read_text() if written.exists() else ""
    if done.returncode or not text:
        raise Failed(f"exit code {done.returncode}, {'a' if text else 'no'} report: {_last_words(done.stderr)}")
    found: dict[str, Any] = json.loads(text)
    return found


def _last_words(text: str) -> str:
    """What a program died of: the last line that names an exception, else the last."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no output"]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    return (named or lines)[-1]


def judge(story: Story, logs: Path, *, again: bool) -> Result:
    """Run one program, or read its recording, and score what is reported."""
    nothing = Score([], list(story.truths), [], [], [])
    try:
        findings = report(story.path, logs / f"{story.name}.log", again=again)["findings"]
    except Failed as e:
        return Result(story, nothing, [], str(e))
    except subprocess.TimeoutExpired:
        return Result(story, nothing, [], f"still running after {_LIMIT_S} s")
    return Result(story, score(story, findings), findings)


def kept(told: list[Story], folder: Path) -> list[Result]:
    """The scores of those whose recordings the repository keeps in ``folder``."""
    found = [(story, recordings.packed(folder, story.name)) for story in told]
    reported = [(story, recordings.findings(at)) for story, at in found if at.exists()]
    return [Result(story, score(story, findings), findings) for story, findings in reported]


def rates(results: list[Result], kind: str = "") -> Rates:
    """Over all programs; of one kind where it is named."""

    def count(kinds: Iterator[str]) -> int:
        return sum(not kind or one == kind for one in kinds)

    return Rates(
        truths=count(truth.kind for result in results for truth in result.story.truths),
        met=count(truth.kind for result in results for truth, _ in result.score.met),
        repeated=count(f["kind"] for result in results for f in result.score.repeated),
        alarms=count(f["kind"] for result in results for f in result.score.alarms),
    )


def kinds(results: list[Result]) -> list[str]:
    """Every kind that is true or reported somewhere, the most frequent first."""
    seen = Counter(truth.kind for result in results for truth in result.story.truths)
    seen.update(dict.fromkeys((f["kind"] for result in results for f in result.score.alarms), 0))
    return [kind for kind, _ in seen.most_common()]


def nearest(truth: Truth, result: Result) -> str:
    """Why nothing met ``truth``: the findings that come next to it."""
    order = ("idea", "change", "line", "kind")
    left = [f for f in result.findings if all(f is not met for _, met in result.score.met)]
    near = sorted(left, key=lambda f: order.index(wrong(truth, f, result.story)))
    if not near or wrong(truth, near[0], result.story) == "kind":
        return "nothing of this kind"
    return f"another {wrong(truth, near[0], result.story)}: {in_a_line(near[0])}"


def in_a_line(finding: dict[str, Any]) -> str:
    """A finding in a line."""
    change = finding.get("change")
    went = f" [{change['what']}: {change['from']} -> {change['to']}]" if change else ""
    return f"{finding['kind']} at line {finding['line']}{went} {finding['cause']}"


def sentences(result: Result) -> Iterator[tuple[str, str]]:
    """What went wrong with a program: ``("missed" | "false alarm" | "failed", sentence)``."""
    if result.failed:
        yield "failed", result.failed
    for truth in result.score.missed:
        went = f" [{truth.change[0]}: {truth.change[1]} -> {truth.change[2]}]" if truth.change else ""
        yield "missed", f"{truth.kind} at line {truth.line}{went} {truth.cause}; {nearest(truth, result)}"
    for finding in result.score.alarms:
        yield "false alarm", in_a_line(finding)


def show(results: list[Result], console: Console) -> None:
    """The tables, and each miss and false alarm in a sentence."""
    table = Table("program", "truths", "found", "repeated", "false alarms", box=None, pad_edge=False)
    for result in results:
        found = len(result.score.met)
        mark = "red" if result.failed or result.score.missed or result.score.alarms else ""
        table.add_row(
            result.story.name, str(len(result.story.truths)), "failed" if result.failed else str(found),
            str(len(result.score.repeated) or ""), str(len(result.score.alarms) or ""), style=mark,
        )  # fmt: skip
    console.print(table)
    for result in results:
        for what, sentence in sentences(result):
            console.print(f"\n[bold]{result.story.name}[/]: {what}: ", end="")
            console.print(sentence, markup=False, highlight=False)
    console.print()
    table = Table("kind", "truths", "found", "false alarms", "recall", "precision", box=None, pad_edge=False)
    for name, one in rows(results):
        table.add_row(name, str(one.truths), str(one.met), str(one.alarms), f"{one.recall:.0%}", f"{one.precision:.0%}")
    console.print(table)


def rows(results: list[Result]) -> list[tuple[str, Rates]]:
    """The lines of the table by kind, and of all."""
    return [*((kind, rates(results, kind)) for kind in kinds(results)), ("all", rates(results))]


def as_json(results: list[Result]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "by_kind": {
            name: {**one._asdict(), "recall": one.recall, "precision": one.precision} for name, one in rows(results)
        },
        "programs": [
            {
                "name": result.story.name,
                "failed": result.failed,
                "truths": len(result.story.truths),
                "met": [truth._asdict() for truth, _ in result.score.met],
                "missed": [{**truth._asdict(), "nearest": nearest(truth, result)} for truth in result.score.missed],
                "repeated": result.score.repeated,
                "accepted": result.score.accepted,
                "alarms": result.score.alarms,
            }
            for result in results
        ],
    }


def page(results: list[Result]) -> str:
    """``docs/diagnosis.md``: the first runs, which count, then what the zoos give, by kind and by program."""
    everything = rates(results)
    programs = [result for result in results if not result.story.name.endswith("_fixed")]
    clean = [result for result in results if not result.story.truths]
    lines = [
        "# How good the diagnosis is",
        "",
        "<!-- Generated by `python benchmarks/diagnosis.py --page docs/diagnosis.md`: do not edit. -->",
        "",
        *UNSEEN.read_text().splitlines(),
        "",
        "## The zoo of programs on `xla`",
        "",
        f"The zoo (`tests/zoo/`) holds {len(programs)} programs as users of PyTorch/XLA write them, most with",
        "mistakes. Beside each stands the truth: line, kind, what changed from what to what. It was written before",
        "xlaprof had seen the program; where a program or its truth proved wrong later, it was corrected (`git log`).",
        f"{len(clean)} of the {len(results)} runs are of programs without a mistake: clean ones with",
        "traps, and the fixed version of each other one. Everything reported there is a false alarm. The rule by which",
        "a finding counts is the text of `tests/zoo/truth.py`.",
        "",
        f"- **Recall {everything.recall:.1%}**: {everything.met} of {everything.truths} mistakes are named with line,",
        "  kind and change.",
        f"- **Precision {everything.precision:.1%}**: {everything.alarms} false alarms.",
        "",
        "PyTorch/XLA's own debug output names 25 of 57 lines and 17 of 57 causes of such programs. The diagnosis was",
        "built with these programs: their score is a regression test, and no measure of quality.",
        "",
        "| kind | mistakes | found | false alarms | recall | precision |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {one.truths} | {one.met} | {one.alarms} | {one.recall:.0%} | {one.precision:.0%} |"
            for name, one in rows(results)
        ),
        "",
        "| program | mistakes | found | false alarms | in its fixed version |",
        "|---|---:|---:|---:|---:|",
        *_by_program(results),
        "",
        *_wrong(results, "What is missed or wrong:"),
        *(line for zoo in OTHERS for line in (*part_on(zoo).read_text().splitlines(), "")),
    ]
    return "\n".join(lines)


def _wrong(results: list[Result], title: str) -> list[str]:
    wrongs = [(result.story.name, *one) for result in results for one in sentences(result)]
    return [title, "", *(f"- {n}: {w}: {s}" for n, w, s in wrongs), ""] if wrongs else []


def section(results: list[Result], zoo: str) -> str:
    """``benchmarks/ZOO.md``, a part of the page: what the kept recordings of another zoo give."""
    title, whose = OTHERS[zoo]
    everything = rates(results)
    programs = [result for result in results if not result.story.name.endswith("_fixed")]
    clean = [result for result in programs if not result.story.truths]
    twins = [result for result in results if result.story.name.endswith("_fixed")]
    mended = {result.story.name.removesuffix("_fixed") for result in twins}
    alone = [one.story.name for one in programs if one.story.truths and one.story.name not in mended]
    alarms = [sum(len(result.score.alarms) for result in some) for some in (programs, twins)]
    lines = [
        f"## {title}",
        "",
        f"`tests/{zoo}/` has recordings of {len(programs)} {whose},",
        f"{len(clean)} of them clean, by authors who had not read the diagnosis' code"
        + (f", and of the fixed versions of {len(twins)}." if twins else "."),
        "This is what the diagnosis makes of them today, by the rule of `tests/zoo/truth.py`, which takes kind, line",
        "and idea by the letter: a true finding that nobody wrote down is a false alarm here. The diagnosis has been",
        "mended with most of these programs since; what counts as quality is their first runs, told above.",
        "**This is a regression score.**",
        "",
        f"- **Recall {everything.recall:.1%}**: {everything.met} of {everything.truths} mistakes are named.",
        f"- **Precision {everything.precision:.1%}**: {alarms[0]} false alarms in the programs"
        + (f", {alarms[1]} in the fixed versions." if twins else "."),
        *([f"- No fixed version has been made of {', '.join(alone)}."] if twins and alone else []),
        "",
        "| kind | mistakes | found | false alarms | recall | precision |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {one.truths} | {one.met} | {one.alarms} | {one.recall:.0%} | {one.precision:.0%} |"
            for name, one in rows(results)
        ),
        "",
        "| program | mistakes | found | false alarms |" + (" in its fixed version |" if twins else ""),
        "|---|---:|---:|---:|" + ("---:|" if twins else ""),
        *(line if twins else line.removesuffix("  |") for line in _by_program(results)),
        "",
        *_wrong(results, "What is missed or wrong:"),
    ]
    return "\n".join(lines)


def _by_program(results: list[Result]) -> Iterator[str]:
    by_name = {result.story.name: result for result in results}
    for name, result in by_name.items():
        if name.endswith("_fixed") and name.removesuffix("_fixed") in by_name:
            continue
        fixed = by_name.get(f"{name}_fixed")
        there = "" if fixed is None else str(len(fixed.score.alarms))
        truths = len(result.story.truths) or "none"
        yield f"| {name} | {truths} | {len(result.score.met)} | {len(result.score.alarms)} | {there} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="programs to run, all by default (NAME is NAME_fixed, too)"
    )
    parser.add_argument("--programs", type=Path, default=ROOT / "tests" / "zoo", metavar="DIR", help="where they are")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the recordings here")
    parser.add_argument("--again", action="store_true", help="analyse the recordings in --logs, run nothing")
    parser.add_argument("--keep", action="store_true", help="keep the recordings in the repository, packed")
    parser.add_argument("--section", type=Path, metavar="FILE", help="write the page's part on this zoo")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of the documentation")
    args = parser.parse_args()
    if args.section and args.programs.name not in OTHERS:
        parser.error(f"--section is for {', '.join(OTHERS)}: --programs is {args.programs}")
    chosen = [
        s
        for s in stories(args.programs.absolute())
        if not args.names or {s.name, s.name.removesuffix("_fixed")} & set(args.names)
    ]
    if not chosen:
        parser.error(f"no such program in {args.programs}, or none with an expected.json")
    say: Callable[[str], None] = Console(stderr=True).print
    with tempfile.TemporaryDirectory() as folder:
        logs = args.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        here = args.again and args.logs is None
        results = kept(chosen, args.programs) if here else []
        for story in () if here else chosen:
            result = judge(story, logs.absolute(), again=args.again)
            results.append(result)
            if args.keep and not result.failed:
                log = logs / f"{story.name}.log"
                recordings.keep(log, story.path, recordings.packed(args.programs, story.name))
            verdict = ", ".join(dict.fromkeys(what for what, _ in sentences(result))) or "right"
            say(f"{story.name}: {verdict}")
    if args.json:
        print(json.dumps(as_json(results), indent=1))
    else:
        show(results, Console())
    if args.section:
        args.section.write_text(section(results, args.programs.name))
    if args.page:
        args.page.write_text(page(results))
    everything = rates(results)
    return int(everything.recall < RECALL or everything.alarms > 0 or any(result.failed for result in results))


if __name__ == "__main__":
    sys.exit(main())
