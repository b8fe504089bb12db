"""The words in which a framework is spoken of: what advice and causes call its barrier, its loader, its arrays.

Findings say the same of every framework: end the step with a barrier, load ahead, pad to one shape. The words and the
code are the framework's. The defaults are those of PyTorch/XLA; another source declares what differs, and the log
carries that in its :class:`~xlaprof.events.Source` event, so that a report needs nothing of the source installed.
"""

from __future__ import annotations

import msgspec


class Vocabulary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Words of one framework. Fields whose name ends in ``_code`` are source code, the others parts of sentences."""

    #: namespace of functions on arrays, as code imports it: ``torch.where``, ``jnp.where``
    arrays: str = "torch"
    #: the call that ends a step's graph and runs it
    barrier: str = "torch_xla.sync() (xlaprof.runtime.sync())"
    barrier_code: str = "torch_xla.sync()"
    #: what feeds a training loop: its name, the argument that leaves out a last batch that is short, how to read ahead
    loader: str = "the DataLoader"
    drop_last_code: str = "DataLoader(..., drop_last=True)"
    load_ahead: str = "more DataLoader workers, a larger prefetch_factor"
    background: str = "a background thread (DataLoader workers)"
    #: pads dimension ``{axis}`` of ``{name}`` to ``size``; ``{zeros}``: ``0, 0, `` for each dimension behind it
    pad_code: str = "{name} = torch.nn.functional.pad({name}, ({zeros}0, size - {name}.shape[{axis}]))"
    #: the setting that makes every Python number an input of the graph; "" where there is none
    scalars_as_inputs_code: str = "XLA_NO_SPECIAL_SCALARS=1 python train.py"


STANDARD = Vocabulary()
