"""The declaration of a kind of finding: nothing outside its file names the kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Finding


def _never(finding: Finding) -> bool:
    return False


class Kind(NamedTuple):
    """A kind of finding. Its file in ``xlaprof/analysis/findings/`` and its page in docs/findings have its name.

    Which events a finding counts is said by the finding itself (:attr:`xlaprof.analysis.model.Finding.counted`).
    """

    find: Callable[[Facts], Iterator[Finding]]
    #: limits of a budget (``xlaprof check``) that count the same events: a line that breaks one is of this kind
    unit_of: tuple[str, ...] = ()
    #: further limits that findings of this kind help to break, and are named for
    blamed_for: tuple[str, ...] = ()
    #: findings that come first, and are of high severity, whatever they were measured to cost
    leads: Callable[[Finding], bool] = _never
