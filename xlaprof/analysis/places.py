"""Two lines between which plain Python ran: which to show, and how to write them. A library's line under the user's."""

from __future__ import annotations

from itertools import dropwhile

from msgspec.structs import replace

from xlaprof.analysis.model import Place
from xlaprof.text.strings import package_path


def culprit(before: Place, after: Place) -> Place:
    """The one line to show for a stretch of plain Python between two lines.

    The code that ran lies after ``before`` and up to ``after``. Going forward it begins at the first; going back to the
    head of a loop it mostly is the beginning of the loop's body, which prepares the second.
    """
    if not before.line:
        return after
    if not after.line:
        return before
    one, two = before.acting, after.acting
    back = one.file == two.file and one.func == two.func and two.line < one.line
    return after if back else before


def span(before: Place, after: Place) -> str:
    """Two lines, short: "train.py:12-19", "train.py:40 -> data.py:7"."""
    if not before.line or not after.line:
        known = before if before.line else after
        return short(known) if known.line else "between unknown lines"
    one, two = before.acting, after.acting
    if one.file == two.file:
        if one.line == two.line:
            return short(before)
        sign = "-" if one.line < two.line else " -> "
        return f"{short(before)}{sign}{two.line}"
    return f"{short(before)} -> {short(after)}"


def short(place: Place) -> str:
    """The innermost line: "train.py:12", or a library's, "transformers/trainer.py:2345"."""
    return f"{package_path(place.acting.file)}:{place.acting.line}"


def cited(place: Place) -> str:
    """The innermost line with its code: "train.py:12 (loss.item())"."""
    return f"{short(place)} ({place.acting.code})" if place.acting.code else short(place)


def named(place: Place) -> str:
    """The innermost line in a sentence: "line 12", or a library's with its file, "transformers/trainer.py:2345"."""
    name = package_path(place.acting.file)
    return f"{name}:{place.acting.line}" if "/" in name else f"line {place.acting.line}"


def called(line: Place) -> str:
    """A library's line in words: "transformers/trainer.py:2345 (_get_output): value = loss.item()"."""
    where = f"{package_path(line.file)}:{line.line} ({line.func.rpartition('.')[2]})"
    return f"{where}: {line.code}" if line.code else where


def way(place: Place) -> str:
    """The functions of libraries between the user's line and the innermost: "train, _inner_training_loop"."""
    return ", ".join(dict.fromkeys(line.func.rpartition(".")[2] for line in reversed(place.library[1:])))


def users(place: Place) -> Place:
    """The user's line by itself."""
    return replace(place, library=()) if place.library else place


def package(line: Place) -> str:
    """The name of the installed package that a library's line belongs to."""
    return package_path(line.file).partition("/")[0].removesuffix(".py")


def of_called(place: Place) -> Place:
    """The innermost line of the library that the program called, which its documentation tells of: not a line of what
    that calls in its turn."""
    if not place.library:
        return place
    whose = package(place.library[-1])
    return replace(place, library=tuple(dropwhile(lambda line: package(line) != whose, place.library)))


def function(place: Place) -> str:
    """A library's line with its function: "Saver.save, at lib/saver.py:65 (torch.save(state, path))"."""
    return f"{place.acting.func}, at {cited(place)}"


def is_head(place: Place) -> bool:
    """Whether a line is the head of the loop around it: what it records, it records for the loop."""
    return 0 < place.acting.line == place.acting.loop
