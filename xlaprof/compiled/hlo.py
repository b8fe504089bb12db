"""XLA's own text of a program (``HloModule.to_string()``): its tables of files and stack frames, and its instructions.

::

    FileNames
    1 "/home/ada/train.py"
    FileLocations
    1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=6 end_column=26}
    StackFrames
    1 {file_location_id=1 parent_frame_id=1}

    ENTRY %main.3 (x.1: f32[4]) -> f32[4] {
      ROOT %sin.0 = f32[4]{0} sine(%x.1), metadata={op_name="jit(f)/sin" stack_frame_id=1}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xlaprof.recording.stacks import RawFrame, is_library

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^ +(ROOT )?%?([\w.\-]+) = (.*)$")

_TABLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)$")
_ROW = re.compile(r"^(\d{1,18}) (?:\"(.*)\"|\{(.*)\})$")
_FRAME = re.compile(r"\bstack_frame_id=(\d{1,18})\b")
_OP_NAME = re.compile(r"\bop_name=\"((?:[^\"\\]|\\.)*)\"")
_METADATA = re.compile(r",? ?metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*\}")
_NUMBER = re.compile(r"(\w+)=(\d{1,18})\b")
_DEEPEST = 1_000  # frames


class Tables:
    """The tables at the beginning of a program, fed line by line."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[int, str]] = {}
        self._open: dict[int, str] | None = None
        self._known: dict[int, list[RawFrame]] = {}  # found once

    def take(self, line: str) -> bool:
        """Whether ``line`` belongs to a table."""
        if heading := _TABLE.match(line):
            self._open = self._tables.setdefault(heading[1], {})
            return True
        if not line:
            self._open = None
        if self._open is None or (row := _ROW.match(line)) is None:
            return False
        self._open[int(row[1])] = row[2] if row[2] is not None else row[3]
        return True

    def frames(self, attributes: str) -> list[RawFrame]:
        """The lines that an instruction with these attributes comes from, innermost first; libraries' too."""
        asked = _FRAME.search(attributes)
        at = int(asked[1]) if asked else 0
        known = self._known.get(at)
        if known is None:
            known = self._known[at] = self._frames(at)
        return known

    def _frames(self, at: int) -> list[RawFrame]:
        found, seen = [], set[int]()
        stacks, locations = self._of("StackFrames"), self._of("FileLocations")
        files, functions = self._of("FileNames"), self._of("FunctionNames")
        while at in stacks and at not in seen and len(seen) < _DEEPEST:
            seen.add(at)
            frame = _numbers(stacks[at])
            where = _numbers(locations.get(frame.get("file_location_id", 0), ""))
            if file := files.get(where.get("file_name_id", 0), ""):
                function = functions.get(where.get("function_name_id", 0), "")
                found.append(RawFrame(file, where.get("line", 0), function.removesuffix(".<locals>")))
            at = frame.get("parent_frame_id", 0)
        return found

    def _of(self, table: str) -> dict[int, str]:
        return self._tables.get(table, {})


def users(frames: Sequence[RawFrame]) -> list[RawFrame]:
    """Those that are not a library's."""
    return [frame for frame in frames if not is_library(frame.file, None)]


def op_name(attributes: str) -> str:
    """What an instruction is called after: the path of scopes, or an argument's name; "" where nothing is said."""
    found = _OP_NAME.search(attributes)
    return found[1].replace("\\'", "'").replace('\\"', '"') if found else ""


def without_metadata(text: str) -> str:
    """``text`` without what its operations are called after, which has the name of the whole program."""
    return _METADATA.sub("", text)


def _numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _NUMBER.findall(text)}
