"""What a number, a text or a list of a recording can be. Whatever lies outside is damage.

The fields of events say it with these types, so it is checked once: where lines are decoded (:mod:`xlaprof.log`). The
analysis checks nothing again. A text or a list that is too long is cut, where it is recorded and where it is read.
"""

from typing import Annotated, Any, TypeVar

from msgspec import Meta

#: characters of a text, and entries of a list or table. Linux allows paths of 4,096 bytes.
LONGEST = 4_096

_T = TypeVar("_T")
_K = TypeVar("_K")

#: of a text, a stack, a program, a thread, a device: two of them fit a machine word
Id = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 60) - 1)]
#: nanoseconds: a moment or a length, of at most 36 years. The sum of two of them fits a machine word.
Ns = Annotated[int, Meta(ge=0, le=(1 << 60) - 1)]
#: nanoseconds since 1970, up to 2116; below 0: not known
UnixNs = Annotated[int, Meta(ge=-(1 << 62), le=(1 << 62) - 1)]
#: what the program counts itself: may be negative
Number = Annotated[int, Meta(ge=-(1 << 60), le=(1 << 60) - 1)]
#: -1: not known
CountIfKnown = Annotated[int, Meta(ge=-1, le=(1 << 60) - 1)]
Seconds = Annotated[float, Meta(ge=-1e12, le=1e12)]
String = Annotated[str, Meta(max_length=LONGEST)]
#: a Python value that the program gave: shown, never counted with
Value = String | int | float | bool | None
List = Annotated[list[_T], Meta(max_length=LONGEST)]
Table = Annotated[dict[_K, _T], Meta(max_length=LONGEST)]
#: ``[count, total ns, longest ns]``
Triple = Annotated[list[Count], Meta(min_length=3, max_length=3)]
#: an id or two, "12" or "12:7". Without a bound, for msgspec then makes each key once: who parses it checks it.
Key = str


def cut(text: str) -> str:
    """``text``, its end replaced by its length where it is longer than :data:`LONGEST`."""
    if len(text) <= LONGEST:
        return text
    told = f"... ({len(text):,} characters)"
    return text[: LONGEST - len(told)] + told


def bounded(value: Any) -> Any:
    """``value`` (of JSON) with all its texts, lists and tables cut to :data:`LONGEST`."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, dict):
        return {cut(key): bounded(value[key]) for key in list(value)[:LONGEST]}
    if isinstance(value, list | tuple):
        return [bounded(one) for one in value[:LONGEST]]
    return value
