"""The text of a graph break, parsed: title, explanation, hints, and the user's stack."""

from __future__ import annotations

import re
from typing import NamedTuple

from xlaprof.events.dynamo import FAILS, WHOLE
from xlaprof.recording.stacks import RawFrame, is_library


class Break(NamedTuple):
    """A graph break. ``frames`` are all of it, innermost first, libraries included."""

    gb: str  # "GB0059": its number in PyTorch's registry, "" where it has none
    title: str
    explanation: str
    hints: tuple[str, ...]
    context: str  # what Dynamo's developers print beside it: the function, the operator
    skipped: bool  # nothing of this function is compiled: it could not go on behind the break
    inside: str  # what it cannot leave half-way: "a loop", "a context manager"; "" where Dynamo does not say
    frames: tuple[RawFrame, ...]

    def user_frames(self, limit: int = 8) -> tuple[RawFrame, ...]:
        """The frames that are the user's own code."""
        return tuple(frame for frame in self.frames if not is_library(frame.file, None))[:limit]

    @property
    def in_library(self) -> bool:
        """The line at which the graph broke is a library's."""
        return bool(self.frames) and is_library(self.frames[0].file, None)


_FRAME = re.compile(r'^ {2,3}File "(?P<file>.+)", line (?P<line>\d+), in (?P<func>.+)$', re.MULTILINE)
_NUMBER = re.compile(r"/gb/gb(\d+)")
_FIELD = re.compile(r"^  (Explanation|Hint|Developer debug context): ", re.MULTILINE)
#: paragraphs before the title
_PREFIXES = ("Failed to handle graph break gracefully", "Encountered graph break when attempting to")
_SKIPPED = ("Skipping the function and falling back to eager", "torch.compile will skip tracing the frame")
#: titles of the second break, which Dynamo meets where it tries to go on behind the first
_INSIDE = {"graph break in loop": "a loop", "Graph break under": "a context manager"}
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<func>.*)_at_(?P<line>\d+)(?:_\d+)?$")


def user_name(co_name: str) -> tuple[str, int]:
    """The name that a function has in the source, and the line it goes on behind; 0 where it begins at its top."""
    found = _RESUMED.match(co_name)
    return (user_name(found["func"])[0], int(found["line"])) if found else (co_name, 0)


def frames_in(stack: str) -> tuple[RawFrame, ...]:
    """The frames of a formatted traceback, innermost first."""
    found = reversed(list(_FRAME.finditer(stack)))
    return tuple(RawFrame(frame["file"], int(frame["line"]), user_name(frame["func"])[0]) for frame in found)


def parse_break(text: str) -> Break:
    """Parse the text of a break; missing parts are empty."""
    message, _, stack = text.partition("\nUser code traceback:\n")
    if not stack and "occurred in the following user code:" in text:
        message, _, stack = text.partition("occurred in the following user code:")
    stack = stack.partition("\nTraceback (most recent call last)")[0]
    skipped = any(sign in message for sign in _SKIPPED)
    message, _, handling = message.partition("*** While handling this graph break")
    message = message.partition("\nStack variable source attribution:")[0]
    body = message.partition("Graph Break Reason: ")[2] or message
    head = _FIELD.split(body, maxsplit=1)[0]
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", head) if part.strip()]
    titles = [part for part in paragraphs if not part.startswith(_PREFIXES)]
    fields = _fields(body)
    number = _NUMBER.search(body)
    return Break(
        gb=f"GB{number[1]}" if number else "",
        title=(titles[0] if titles else "").partition("\n")[0].strip(),
        explanation=" ".join(fields.get("Explanation", ())),
        hints=tuple(fields.get("Hint", ())),
        context=" ".join(fields.get("Developer debug context", ())),
        skipped=skipped,
        inside=next((what for sign, what in _INSIDE.items() if sign in handling), "") if skipped else "",
        frames=frames_in(stack),
    )


_RAISED = re.compile(r"^torch\._dynamo\.exc\.(?P<kind>\w+): ", re.MULTILINE)
#: what is told otherwise: as a limit, or not at all
_NO_FAILURES = ("Skip", "RecompileLimit", "FailOnRecompile", "CacheLimit", "Restart")
_BREAK = "Unsupported"
_GOT = re.compile(r"got (?P<error>\w+)\((?P<quote>['\"])(?P<message>.*?)(?P=quote)\)", re.DOTALL)
_MOST = 300  # characters of a message


def parse_failure(text: str) -> Break | None:
    """Parse the traceback of a compilation that failed, as a break that leaves nothing compiled; None of others."""
    raised = list(_RAISED.finditer(text))
    if not raised or raised[-1]["kind"].startswith(_NO_FAILURES):
        return None
    message, _, stack = text[raised[-1].end() :].partition("\nfrom user code:\n")
    if raised[-1]["kind"].startswith(_BREAK):
        found = parse_break(f"{message}\nUser code traceback:\n{stack}")
        return found._replace(skipped=True, inside=found.inside or WHOLE)
    got = _GOT.search(message)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = got["message"] if got else " ".join(lines[:2])
    said = " ".join(said.split())
    said = said if len(said) <= _MOST else f"{said[:_MOST]}..."
    frames = frames_in(stack)
    own = next((at for at, frame in enumerate(frames) if not is_library(frame.file, None)), 0)
    return Break("", f"{FAILS} ({said.rstrip('.')})", "", (), "", True, "", frames[own:])


def _fields(body: str) -> dict[str, list[str]]:
    """``Explanation``, ``Hint`` and ``Developer debug context``; each goes on until the next or an empty line."""
    fields: dict[str, list[str]] = {}
    found = list(_FIELD.finditer(body))
    for i, field in enumerate(found):
        end = found[i + 1].start() if i + 1 < len(found) else len(body)
        value = body[field.end() : end].partition("\n\n")[0]
        fields.setdefault(field[1], []).append(" ".join(value.split()))
    return fields
