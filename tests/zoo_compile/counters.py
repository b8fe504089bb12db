"""Runs a program and says what PyTorch itself counted, graphs, graph breaks and recompilations, without xlaprof.

    python tests/zoo_compile/counters.py PROGRAM.py

The last line of its output is ``{"graphs": 1, "operations": 20, "graph_breaks": 0, "recompiles": 0}``, with the
operations that Dynamo put into the graphs; PyTorch's log on stderr has the reasons.
"""

from __future__ import annotations

import json
import logging
import runpy
import sys

import torch
from torch._dynamo.utils import counters


class _Recompilations(logging.Handler):
    """PyTorch has no counter of recompilations: each is an entry in its log."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += str(record.msg).startswith("Recompiling function")


def main(program: str) -> None:
    recompilations = _Recompilations()
    torch._logging.set_logs(recompiles=True, graph_breaks=True)
    torch._logging.getArtifactLogger("torch._dynamo.guards", "recompiles").addHandler(recompilations)
    sys.argv = [program]
    runpy.run_path(program, run_name="__main__")
    breaks = sum(counters["graph_break"].values())
    graphs, operations = (counters["stats"][name] for name in ("unique_graphs", "calls_captured"))
    counted = {"graphs": graphs, "operations": operations, "graph_breaks": breaks, "recompiles": recompilations.count}
    print(json.dumps(counted))


if __name__ == "__main__":
    main(sys.argv[1])
