"""The process that makes a graph at fault smaller.

PyTorch's search over graphs (``functorch.compile.minifier``) with this package's own question: is the compiled graph
still wrong? (PyTorch's own minifier asks after one that it cannot call, with every backend of AOTAutograd's, and
compares dropout with another dropout: 2.13.)
"""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import torch
from functorch.compile import minifier  # type: ignore[import-untyped]
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.debug_utils import InputReader

from xlaprof.doctor.graphs import copies, difference, results_of
from xlaprof.doctor.programs import write_program

ALIKE = 0.5  # of two errors' texts, from which they are taken for one: names in them are those of another graph


def main() -> None:
    """``WHOLE SMALLER WHERE``: write the program SMALLER, whose graph is the least of WHOLE's that still goes wrong."""
    whole, smaller, where = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("whole", whole)
    assert spec is not None
    assert spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    reader = InputReader(save_dir=os.path.dirname(whole))
    program.load_args(reader)
    found: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def take(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append((graph, list(inputs)))
        return graph.forward

    torch._dynamo.optimize(take)(program.Repro())(*copies(reader.args))
    if len(found) != 1:
        raise SystemExit(f"the graph is in {len(found)} pieces when it is captured again")
    backend = lookup_backend(program.BACKEND)
    (graph, inputs) = found[0]
    fault = fault_of(graph, inputs, backend)
    if not fault:
        raise SystemExit("alone, the graph does not go wrong")

    def fails(smaller_one: torch.fx.GraphModule, given: Sequence[Any]) -> bool:
        again = fault_of(smaller_one, given, backend)
        kind, _, text = again.partition(":")
        before, _, words = fault.partition(":")
        return kind == before and (kind == "numbers" or SequenceMatcher(None, text, words).ratio() > ALIKE)

    def keep(smaller_one: torch.fx.GraphModule, given: Sequence[Any]) -> None:
        write_program(
            smaller, smaller_one, given, program.BACKEND, program.__doc__.splitlines()[0], where, program.ALLOWED
        )

    minifier(graph, inputs, module_fails=fails, dump_state=keep)


def fault_of(graph: torch.fx.GraphModule, inputs: Sequence[Any], backend: Any) -> str:
    """What goes wrong with a graph: "numbers:...", "crash:TYPE text" or ""."""
    try:
        results_of(copy.deepcopy(graph), inputs)
    except Exception:  # a piece that does not run in PyTorch itself proves nothing
        return ""
    try:
        compiled = backend(copy.deepcopy(graph), copies(inputs))
        found = difference(graph, compiled, inputs)
    except Exception as error:
        return f"crash:{type(error).__name__} {error}"
    return f"numbers:{found}" if found is not None else ""


if __name__ == "__main__":
    main()
