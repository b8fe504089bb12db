"""What panels say to the application."""

from __future__ import annotations

from textual.message import Message

from xlaprof.analysis.model import Finding, Place
from xlaprof.text.cells import shorten_place


class Looking(Message):
    """The user looks at a line of code, which ``o`` opens."""

    def __init__(self, place: Place, finding: str = "") -> None:
        """``finding``: the id of the one that is looked at."""
        super().__init__()
        self.place, self.finding = place, finding


class Explain(Message):
    """The user wants all that is known of a finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding


class ShowCode(Message):
    """The user wants the texts of a compiled program."""

    def __init__(self, source: str, key: str = "", name: str = "", other: str = "") -> None:
        """By its ``key`` or ``name``. ``other``: the key of the one that it was compared with."""
        super().__init__()
        self.source, self.key, self.name, self.other = source, key, name, other


def place_text(place: Place, width: int = 1000) -> str:
    """A line of code: "train.py:24"; "" where it is not known."""
    return shorten_place(place.file, place.line, width)
