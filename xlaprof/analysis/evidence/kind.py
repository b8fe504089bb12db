"""The declaration of a kind of finding: only its own file names the kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Finding


def _never(finding: Finding) -> bool:
    return False


class Kind(NamedTuple):
    """A kind of finding. Its file in ``xlaprof/analysis/findings/`` and its page in docs/findings have its name.

    Each finding declares the events it counts (:attr:`xlaprof.analysis.model.Finding.counted`).
    """

    find: Callable[[Facts], Iterator[Finding]]
    #: limits of a budget (``xlaprof check``) that count the same events: a line that breaks one is of this kind
    unit_of: tuple[str, ...] = ()
    #: further limits that findings of this kind help to break: they are named as its cause
    blamed_for: tuple[str, ...] = ()
    #: whether a finding comes first, with high severity, whatever it was measured to cost
    leads: Callable[[Finding], bool] = _never
