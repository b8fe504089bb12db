"""Texts and places of the page by number: what repeats is written once."""

from __future__ import annotations

from typing import Any

from xlaprof.analysis.model import Place
from xlaprof.analysis.places import short
from xlaprof.text.strings import clip, path_line

_LONGEST = 300  # characters of a label on the timeline
_LABELS = 20_000  # different ones: a hostile recording may have one for each event


class Index:
    """Numbers for labels and for places. Place 0 is no place."""

    def __init__(self) -> None:
        self.labels: list[tuple[str, str]] = []  # text, part
        self.places: list[dict[str, Any] | None] = [None]
        self._labels: dict[tuple[str, str], int] = {}
        self._places: dict[Place, int] = {Place(): 0}

    def label(self, text: str, part: str) -> int:
        """The number of a label, which is drawn in the colour of ``part``."""
        key = clip(text, _LONGEST), part
        found = self._labels.get(key)
        if found is None:
            if len(self.labels) >= _LABELS and text != part:
                return self.label(part, part)
            found = self._labels[key] = len(self.labels)
            self.labels.append(key)
        return found

    def place(self, place: Place) -> int:
        """The number of a line of code; 0 where it is not known."""
        if not place.file and not place.line:
            return 0
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = len(self.places)
            self.places.append(shown(place))
        return found


def shown(place: Place) -> dict[str, Any]:
    """A line of code as the page shows it."""
    return {
        "file": place.file,
        "line": place.line,
        "short": short(place) if place.line else path_line(place.file, place.line),
        "where": path_line(place.file, place.line),
        "func": "" if place.func == "<module>" else place.func,
        "code": place.acting.code or place.code,
    }
