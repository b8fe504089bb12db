"""``--strict-parity``: do all the work that PyTorch/XLA 2.9 does, also where less would suffice.

By default the runtime has the compilations, executions and reads of PyTorch/XLA, or fewer where it needs less work. In
strict mode it does the same work:

- every distinct number that a graph reads is a transfer of its own (:mod:`.execution.upload`); so is one seed a step;
- operations whose result's size depends on values (``nonzero``, masks, ``unique``...) run on the CPU: their inputs are
  read each time, and their results uploaded;
- operators that PyTorch/XLA does not lower run on the CPU, also where we lower them;
- ``torch.compile`` treats a number that was read as a constant, so each new one is traced again; and whenever it
  compiles, it clears all counters, not the metrics;
- a graph of Dynamo's that has to be split at a fallback is run twice first: to find the fallback, and the arguments of
  its pieces (the original arguments are restored afterwards);
- ``clip_grad_norm_(error_if_nonfinite=True)`` reads whether the norm is NaN, and then whether it is infinite;
- some numbers are part of the graph, so that another one is another graph: those of ``threshold``, the bounds in the
  gradient of ``hardtanh``, the base of a power, corrections of ``std`` and ``var``;
- the first step of an optimizer is compiled for itself: the state that is made in it is not an input of its graph
  (:mod:`.execution.constants`), numbers that are 0, 1 or equal in it alone are constants or one number
  (:mod:`.tape.grow`), and SGD copies the gradients to its momentum (:mod:`.pytorch.optimizers`);
- indices are wrapped by operations of the graph, which read the size as a number.

This module has only the flag. Code that depends on it reads it, or registers for changes (:data:`on_change`). Recording
an operation does not read it: :mod:`.dispatch.strict_handlers` replace the ordinary ones when an operator is first
called.
"""

from __future__ import annotations

import os
from collections.abc import Callable

#: is strict parity on? Set by :func:`set_strict`.
strict = os.environ.get("XLAPROF_STRICT_PARITY", "").lower() in ("1", "true", "on", "yes")

#: called after the flag has changed: caches that depend on it are cleared
on_change: list[Callable[[], object]] = []


def set_strict(on: bool) -> None:
    """Turn strict parity on or off; the same as ``XLAPROF_STRICT_PARITY=1`` and ``xlaprof run --strict-parity``."""
    global strict
    if on is not strict:
        strict = on
        for changed in on_change:
            changed()
