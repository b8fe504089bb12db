"""Strings of a log, which may hold anything, made fit for a line of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_BITS = re.compile(r"^(float|int|uint|complex)(\d+)$")


def printable(text: str) -> str:
    """``text`` on one line, without control characters or halves of surrogate pairs."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else " " if ch.isspace() else "\N{REPLACEMENT CHARACTER}" for ch in text)


def clip(text: str, longest: int) -> str:
    """``text`` in at most ``longest`` characters, its end replaced by three dots where it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def enumerated(texts: Sequence[str], most: int) -> str:
    """ "a, b and c"; of more than ``most`` these and how many more there are: "a, b, c and 2 more"."""
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def with_article(noun: str) -> str:
    """ "a recompile", "an idle_gap"."""
    return f"{'an' if noun[:1] in tuple('aeiou') else 'a'} {noun}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that names the closest of the ``known`` words; "" where none is close."""
    from difflib import get_close_matches  # takes milliseconds to import

    close = get_close_matches(word, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else ""


def short_dtype(dtype: str) -> str:
    """``float32`` as ``f32``."""
    return "bf16" if dtype == "bfloat16" else _BITS.sub(lambda found: found[1][0] + found[2], dtype)


def array_text(dtype: str, shape: Iterable[object]) -> str:
    """The type of an array: "f32[8,128]"."""
    return f"{short_dtype(dtype)}[{','.join(map(str, shape))}]"


def without_comment(line: str) -> str:
    """A line of Python without what stands behind a "#" between blanks."""
    return re.sub(r"\s#\s.*", "", line)


def file_line(file: str, line: int) -> str:
    """A line of code by the name of its file: "train.py:12"; "at exit" where no line ran."""
    name = file.replace(chr(92), "/").rpartition("/")[2]
    return f"{name}:{line}" if line else name


def package_path(file: str) -> str:
    """A file of an installed package by its path within: "transformers/trainer.py"; any other by its name."""
    parts = file.replace(chr(92), "/").split("/")
    at = max((i + 1 for i, part in enumerate(parts[:-1]) if part in ("site-packages", "dist-packages")), default=-1)
    return "/".join(parts[at:])


def path_line(file: str, line: int) -> str:
    """A line of code by the path of its file: "/home/ada/train.py:12"; "at exit" where no line ran."""
    return f"{file}:{line}" if line else file or "no line is known"
