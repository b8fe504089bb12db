"""The words in which a framework is spoken of: what advice calls its barrier, its loader, its arrays.

Findings say the same of every framework: end the step with a barrier, load ahead, pad to one shape. The words and the
code are the framework's. The defaults are those of PyTorch/XLA. Another source declares what differs, and the log
carries that (:class:`xlaprof.events.Source`), so that a report needs nothing of the source installed.
"""

import re

import msgspec

from xlaprof.bounds import String


class Vocabulary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Words of one framework: parts of sentences, and code. In braces stands what the advice fills in."""

    #: namespace of the functions on arrays and of the dtypes: ``torch.where``, ``jnp.where``
    arrays: String = "torch"
    #: the call that ends a step's graph and runs it: in a sentence, and in code
    barrier: String = "torch_xla.sync() (xlaprof.runtime.sync())"
    barrier_code: String = "torch_xla.sync()"
    #: when a value is to be read; "" where there is no barrier
    after_barrier: String = "after the barrier"
    #: where a value is kept so that it can be read later: "Keep the loss ..."
    keep: String = "on the device (.detach())"
    keep_code: String = "{name}.detach()"
    to_host: String = ".cpu() or .tolist()"
    #: an array that is made on the device: what its constructor is given, behind all else
    on_device: String = ", device=device"
    #: elements taken, written and added up at positions that an array holds: in a sentence, and in code
    take: String = "torch.index_select, gather"
    take_code: String = "torch.index_select(table, 0, index.flatten())"
    write: String = "index_copy_"
    add: String = "index_add_"
    add_code: String = "sums.index_add_(0, entries, values)"
    #: arrays made, converted and padded. ``{zeros}``: ``0, 0, `` for each dimension behind ``{axis}``
    scalar_code: String = "torch.tensor([{value}], device=device)"
    zeros_code: String = "torch.zeros({shape}, dtype={dtype}, device=device)"
    convert_code: String = "{name}.to({dtype})"
    #: ``{value}``: ", value=" and what to pad with; "" for 0
    pad_code: String = "torch.nn.functional.pad({name}, ({zeros}0, size - {name}.shape[{axis}]){value})"
    #: compiles a step for several ``{sizes}`` before its loop; "" where nothing does
    warm_code: String = "xlaprof.runtime.warm(step, *map(example, {sizes}))"
    #: writes ``new`` into ``buffer`` at ``position`` along ``{axis}``
    write_code: String = "buffer.index_copy({axis}, position, new)"
    #: what feeds the loop: how to read ahead, where its work can go, how to leave out a short last batch
    load_ahead: String = "more DataLoader workers, a larger prefetch_factor"
    background: String = "a background thread (DataLoader workers)"
    #: how to bring to the device once what is brought there again and again: in a module's forward, elsewhere, in code
    as_buffer: String = (
        "Register it in the module's __init__ (self.register_buffer(...)), so that model.to(device) moves it once"
    )
    put_once: String = "Bring it to the device once, before the loop, and use that in the loop"
    put_once_code: String = "{name} = {name}.to(device)  # once, before the loop"
    #: what brings the next batch to the device while the step of this one runs
    send_ahead: String = "torch_xla.distributed.parallel_loader.MpDeviceLoader(loader, device) does so in threads"
    drop_last: String = "pass drop_last=True to the DataLoader"
    drop_last_code: String = "DataLoader(..., drop_last=True)"
    #: the setting that makes every Python number an input of the graph, and how to run with it; "" where there is none
    scalars_as_inputs: String = "XLA_NO_SPECIAL_SCALARS=1"
    scalars_as_inputs_code: String = "XLA_NO_SPECIAL_SCALARS=1 python train.py"
    #: what to make of a loop that goes on until a value says so, which the host reads in each turn
    until: String = (
        "Run a fixed number of turns, the most that it can take, with a mask ({arrays}.where), so that a turn which is "
        "not needed changes nothing"
    )
    #: gives an array its sharding
    shard: String = "mark_sharding"


STANDARD = Vocabulary()


def fill(template: str, **values: object) -> str:
    """``template`` with the ``values`` in the places of their names. Unlike str.format this never fails: a recording
    may hold any template."""
    return re.sub(r"\{(\w+)\}", lambda name: str(values.get(name[1], name[0])), template)
