"""``--strict-parity``: do all that PyTorch/XLA 2.9 does, also where less would suffice.

The default runtime already shows the compilations, executions and reads that PyTorch/XLA would; where it shows fewer
it is because it does less. In strict mode it really does what PyTorch/XLA does:

- every distinct number that a graph reads is a transfer of its own (:mod:`.execution.upload`), and one seed a step;
- sizes that values decide are found on the CPU: ``nonzero``, masks, ``unique``... bring their inputs to the host each
  time, and their results back;
- operators that PyTorch/XLA does not lower run on the CPU, also where we lower them;
- ``torch.compile`` takes a number that was read for a constant, so each new one is traced again; and whenever it
  compiles, it clears all counters, not the metrics;
- a graph of Dynamo's that has to be cut, for what falls back, is run twice before: to see that, and what its pieces are
  given (the arguments are put back afterwards);
- ``clip_grad_norm_(error_if_nonfinite=True)`` reads whether the norm is NaN, and then whether it is infinite;
- indices are wrapped by operations of the graph, which read the size as a number.

Here is the flag alone. What depends on it asks for it, or learns of a change (:data:`on_change`). No recorded
operation asks: :mod:`.dispatch.strict_handlers` take the place of the ordinary ones when an operator is first called.
"""

from __future__ import annotations

import os
from collections.abc import Callable

#: is the peer's behaviour asked for? Set by :func:`set_strict`.
strict = os.environ.get("XLAPROF_STRICT_PARITY", "").lower() in ("1", "true", "on", "yes")

#: called after the flag has changed: caches that depend on it forget what they have
on_change: list[Callable[[], object]] = []


def set_strict(on: bool) -> None:
    """Do as PyTorch/XLA does from now on, or no longer.

    In place of ``XLAPROF_STRICT_PARITY=1`` and of ``xlaprof run --strict-parity``.
    """
    global strict
    if on is not strict:
        strict = on
        for changed in on_change:
            changed()
