"""Text on a stream of any encoding, and on terminals that draw nothing but ASCII."""

from __future__ import annotations

import os
import sys
from typing import IO

#: what pages draw with, in ASCII, cell for cell; of bars and curves the height remains
_ASCII = str.maketrans("─·…×▏▎▍▌▋▊▉█▁▂▃▄▅▆▇", "--~x::::=###__.-=+*")


def write(text: str, file: IO[str] | None = None) -> None:
    """Write ``text`` on ``file`` (default: standard output).

    What the encoding lacks, or with TERM=dumb all that is not ASCII, is drawn in ASCII; other letters are question
    marks.
    """
    file = file or sys.stdout
    encoding = "ascii" if os.environ.get("TERM") == "dumb" else getattr(file, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    file.write(text)
    file.flush()
