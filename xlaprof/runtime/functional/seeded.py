"""Record jax functions that take random bits: functions with the same key are one operation."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import torch

from xlaprof.runtime.tape.computations import Computation

#: operations remembered at most
LIMIT = 512
_known: OrderedDict[Hashable, Computation] = OrderedDict()
_lock = threading.Lock()  # threads of one process may each have a device


def record(
    name: str,
    key: Hashable,
    function: Callable[[Sequence[Any], Any], list[Any]],
    tensors: Sequence[torch.Tensor],
    size: tuple[int, ...],
) -> list[torch.Tensor]:
    """Record ``function(arrays, bits)`` over ``tensors`` on ``xla``, at least one, as an operation ``name``.

    Functions with the same key compute the same. The bits (u32 of ``size``) come from the device's generator, new at
    each call.
    """

    def given(bits: Any, *arrays: Any) -> list[Any]:
        return function(arrays, bits.astype(jnp.uint32))

    with _lock:
        computation = _known.get((name, key))
        if computation is None:
            computation = _known[name, key] = Computation(f"xla::{name}", given)
            if len(_known) > LIMIT:
                _known.popitem(last=False)
        _known.move_to_end((name, key))
    device = tensors[0].device
    random = 0 not in size
    bits = torch.randint(2**32, size, device=device) if random else torch.zeros(size, dtype=torch.int64, device=device)
    return computation(bits, *tensors)
