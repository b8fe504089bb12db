"""Events with hostile strings, built from the declarations: what is new in the schema is new here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from every_event import every_event
from msgspec.structs import fields

from xlaprof.events import kinds

MARK = "HOSTILE"
EVIL = (
    f"{MARK}\x1b]52;c;aGk=\x07\x1b]8;;http://evil\x1b\\here\x1b[2J\x1b[31m\x9b31m\x90q\r\n::error file=a.py::{MARK}\n"
    "##[error]x ::warning::y \u202e\u2066\u200b\ufeff\u2028::notice::z\x00\x7f\x08 [red][link=http://evil]</script>\t"
)
#: strings that say what an event means: another one is another event
MEANINGS = ("trigger", "state")


def beside(text: str) -> str:
    return text + EVIL


def instead(text: str) -> str:
    return EVIL


def long(text: str) -> str:
    return f"{text}{EVIL * 50}"  # some 10 kB


def hostile(value: Any, change: Callable[[str], str]) -> Any:
    """``value`` with every string in it changed, but those that other events refer to."""
    if isinstance(value, msgspec.Struct):
        names = [one.name for one in fields(value)]
        kept = MEANINGS if change is not instead else ()
        return msgspec.structs.replace(
            value, **{name: hostile(getattr(value, name), change) for name in names if name not in kept}
        )
    if isinstance(value, str):
        return value if re.fullmatch(r"\d+(:\d+)?", value) else change(value)
    if isinstance(value, dict):
        return {hostile(key, change): hostile(item, change) for key, item in value.items()}
    return [hostile(item, change) for item in value] if isinstance(value, list | tuple) else value


EVERY = [msgspec.convert(event, kinds()[event["k"]]) for event in every_event(EVIL)]
