"""Text on a stream of any encoding."""

from __future__ import annotations

import sys
from typing import IO


def write(text: str, file: IO[str] | None = None) -> None:
    """Write ``text`` on ``file`` (default: standard output); what its encoding lacks as question marks."""
    file = file or sys.stdout
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(text.encode(encoding, "replace").decode(encoding))
    file.flush()
