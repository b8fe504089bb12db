"""The report of a log that is read and counted in columns as soon as may be, and of the same log line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xlaprof import log as logs
from xlaprof import reports
from xlaprof.analysis.fold import fold
from xlaprof.analysis.fold.columns import count
from xlaprof.columns import reader
from xlaprof.errors import UserError


def told(path: Path, columns: bool) -> dict[str, Any] | str:
    """The report as it is in JSON, or why there is none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs, "CHUNK", 1_024)  # of a damaged beginning it matters what is read first
        for module, name, most in (
            (logs, "LONG", 1), (reports, "LONG", 1), (reader, "_OFTEN", 1), (fold, "_FEW", 0), (count, "_LEAST", 4),
        ):  # fmt: skip
            if columns:
                patched.setattr(module, name, most)
        try:
            return reports.report(path).to_json()
        except UserError as error:
            return str(error)
