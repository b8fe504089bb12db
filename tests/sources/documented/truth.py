"""What is true of a program that shows what PyTorch's documentation says of ``torch.compile``.

The pages are PyTorch's (``torch.compiler_faq``, ``_get_started``, ``_troubleshooting``, ``_fine_grain_apis``, those on
the programming model and on dynamic shapes); the programs are this repository's own, and do what an example there does.
Each truth was written before xlaprof had seen the program. What the pages say of accuracy is in ``tests/doctor``, of
phases and caches in ``tests/sources/test_dynamo_phases.py`` and ``test_dynamo_live.py``, of ranks in
``test_spawned.py``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from xlaprof.analysis.model import Finding


class Named(NamedTuple):
    """A mistake, and what a finding has to say to name it."""

    kind: str
    #: a part of the first line of the program that may be named
    at: str
    #: a regular expression, found in cause, advice or change
    idea: str


class Example(NamedTuple):
    """A program; ``page``: where the documentation has what it shows."""

    page: str
    program: Callable[[], Any]
    named: tuple[Named, ...]
    #: true, and nobody has to say it
    also: tuple[Named, ...]

    @property
    def name(self) -> str:
        return self.program.__name__


class Score(NamedTuple):
    missed: list[Named]
    false: list[Finding]


def shows(page: str, *named: Named, also: tuple[Named, ...] = ()) -> Callable[[Callable[[], Any]], Example]:
    return lambda program: Example(page, program, named, also)


def line_of(program: Callable[[], Any], text: str) -> int:
    """Number of the first line of ``program``, below its truths, that contains ``text``."""
    lines, first = inspect.getsourcelines(program)
    begin = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return next(first + i for i, line in enumerate(lines) if i > begin and text in line)


def is_right(truth: Named, finding: Finding, program: Callable[[], Any]) -> bool:
    change = finding.change
    said = "\n".join((finding.cause, finding.advice, *((change.what, change.old, change.new) if change else ())))
    return (
        finding.kind == truth.kind
        and finding.place.line == line_of(program, truth.at)
        and bool(re.search(truth.idea, said))
    )


def score(example: Example, findings: list[Finding]) -> Score:
    """Each truth needs a finding of its own."""
    left, missed = list(findings), []
    for truth in example.named:
        fitting = [finding for finding in left if is_right(truth, finding, example.program)]
        left = [finding for finding in left if finding not in fitting[:1]]
        missed += [] if fitting else [truth]
    return Score(missed, [one for one in left if not any(is_right(t, one, example.program) for t in example.also)])
