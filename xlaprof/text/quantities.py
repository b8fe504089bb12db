"""Durations, sizes, shares and counts as text."""

from __future__ import annotations

_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LETTERS = ("", "k", "M", "G", "T", "P", "E")


def duration(seconds: float) -> str:
    """A length of time: "12 ns", "210 us", "5.2 ms", "34 ms", "1.82 s", "12.3 s", "2m 05s", "1h 02m", "4d 04h"."""
    if seconds <= 0:
        return "0 s"
    if seconds >= 100 * 3600:
        hours = round(seconds / 3600)
        return f"{hours // 24}d {hours % 24:02}h"
    if seconds >= 3599.5:
        minutes = round(seconds / 60)
        return f"{minutes // 60}h {minutes % 60:02}m"
    if seconds >= 99.95:
        return f"{round(seconds) // 60}m {round(seconds) % 60:02}s"
    # The bounds are where rounding reaches the next unit: 999.6 us is "1.0 ms".
    if seconds >= 0.9995:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    if seconds >= 999.5e-6:
        return f"{seconds * 1e3:.1f} ms" if seconds < 9.95e-3 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.0f} us" if seconds >= 999.5e-9 else f"{seconds * 1e9:.0f} ns"


def elapsed(seconds: float) -> str:
    """A clock that moves, as coarse as people read one: "0.4 s", "12 s", "2m 05s"."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    return f"{seconds:.0f} s" if seconds < 99.5 else duration(seconds)


def size_text(octets: float) -> str:
    """A number of bytes: "40 bytes", "1.5 KiB", "512 MiB", "36.4 TiB"."""
    units = iter(_SIZES)
    unit = next(units)
    while octets >= 1023.5 and unit != _SIZES[-1]:
        octets, unit = octets / 1024, next(units)
    return f"{octets:.3g} {unit}" if octets < 999.5 else f"{octets:.0f} {unit}"


def amount(number: float) -> str:
    """A large number, for a unit to follow: "40 ", "68.8 M", "1.25 T"."""
    letters = iter(_LETTERS)
    letter = next(letters)
    while number >= 999.5 and letter != _LETTERS[-1]:
        number, letter = number / 1000, next(letters)
    return f"{number:.3g} {letter}" if number < 999.5 else f"{number:.0f} {letter}"


def percent(share: float) -> str:
    """A share (0..1) of a whole: "41%"; "<1%" for what exists but would round to nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 finding", "1,234 steps"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def times(count: int) -> str:
    """ "once", "twice", "7 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")
