"""Recordings of programs that are kept in the repository, so that they can be scored again in no time.

They are packed, and paths of the machine that made them are gone: a program is known by its name, a library by its own.
"""

from __future__ import annotations

import lzma
import re
import tempfile
from pathlib import Path
from typing import Any

import xlaprof
from xlaprof.pages.json import to_json

_LIBRARIES = re.compile(rb'"(?:/[^"/]+)*(/(?:site-packages|lib/python3\.\d+)/)')
_HEADER = re.compile(rb'"(host|cwd)":"[^"]*"')


def packed(folder: Path, name: str) -> Path:
    """Where the recording of a program is kept."""
    return folder / "recordings" / f"{name}.log.xz"


def keep(log: Path, program: Path, at: Path) -> None:
    """Keep a recording of ``program``."""
    lines = log.read_bytes()
    lines = _HEADER.sub(rb'"\1":""', lines)
    lines = re.sub(rb'"(?:/[^"/]+)+/(%s)"' % re.escape(program.name.encode()), rb'"\1"', lines)
    lines = _LIBRARIES.sub(rb'"/usr\1', lines)
    at.parent.mkdir(exist_ok=True)
    at.write_bytes(lzma.compress(lines, preset=9))


def findings(at: Path) -> list[dict[str, Any]]:
    """What is found in a kept recording, as the report's JSON has it."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.log")
        log.write_bytes(lzma.decompress(at.read_bytes()))
        found: list[dict[str, Any]] = to_json(xlaprof.report(log))["findings"]
    return found
