"""Samples of PyTorch's operators with one argument spoilt: what the CPU and what ``xla`` say to them.

A tensor gets another dtype, size, number of dimensions, or no element, a number leaves its range; the call is
the function, its in-place form or the one with ``out=``. Nothing is computed on ``xla``: what shapes and dtypes
tell is told at the call, and what the CPU accepts is accepted. Left out are refusals that come from values
(:data:`OF_VALUES`; docs/runtime.md has their table), what is no answer of the CPU's (:data:`NO_ANSWER`) and sizes at
which it does not look (:data:`UNBOUNDED`).

PyTorch composes some functions of other operators where the device is not the CPU. The words are then those of
another operator, or none refuses: :attr:`Refusal.elsewhere`, counted apart.
"""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

import pytest
import torch
from op_database import entries
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from xlaprof.runtime.shapes import infer, rehearse

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.complex64)
#: what is said of this device alone, and dtypes that XLA computes with and PyTorch's CPU does not
#: (labels in floats are taken as XLA devices take them)
OF_THE_DEVICE = re.compile(r"CPU\w+Type|not implemented for '(BFloat16|Half)'|expected target dtype to be Long or Byte")
#: what only values can tell
OF_VALUES = re.compile(
    r"index .* is out of bounds|out of range in self|INDICES element|Target .* out of bounds|ZeroDivision|range of \["
    r"|Class values|target.* out of range|singular|definite|factoriz|converge|non-negative|max index|p_in"
    r"|between 0 and 1|probability|lengths|takes value|number of ones in mask|all elements of|sorter index"
    r"|pivots passed|tried to access|not finite|segment_length|offsets\[(0|-1)\]|checking arguments for ctc_loss"
    r"|allocated size does not match"
)
#: where PyTorch itself fails: assertions that are to be reported to it
NO_ANSWER = re.compile(r"INTERNAL ASSERT|SmallVector unable to grow")
#: what no XLA device has: layouts and dtypes, more than 64 dimensions, a negative size (of no element)
NOT_ON_XLA = re.compile(r"cannot live on xla|number of dimensions must be within|negative dimensions are not allowed")
#: what only the CPU takes: it does not look how a number grows into a matrix, and torch.norm() calls what takes two
#: dimensions where it does not know the device
UNSEEN = {("addbmm", "in place"), ("norm.fro", "out=")}
#: their CPU kernels do not look how large some arguments are, and read beyond them: what comes of it is chance, and may
#: be the end of the process
UNBOUNDED = {
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "_segment_reduce.lengths",
    "_segment_reduce.offsets",
    "lu_unpack",
}
#: made of numbers alone, of which the value is refused: the CPU is not asked for large ones
OF_NUMBERS = {"logspace"}
#: their tensors of sizes are on the host for every device
ON_THE_HOST = {"tensor_split"}


class Refusal(NamedTuple):
    """A call that the CPU or ``xla`` refuses."""

    entry: str
    call: str
    expected: str  # empty: the CPU accepts it
    told: str  # empty: accepted
    elsewhere: bool  # PyTorch composes the function of other operators on xla

    @property
    def alike(self) -> bool:
        """The same type, and PyTorch's first words?"""
        told = re.sub(r"XLA(\w+)Type", r"torch.\1Tensor", self.told)
        said = (text.replace("_channels_last", "") for text in (told, self.expected))  # xla has no memory formats
        told, expected = (text.split()[:5] for text in said)
        return told == expected


class Calls:
    """What came of many spoilt calls."""

    def __init__(self) -> None:
        self.calls = self.refused = self.accepted = self.otherwise = self.elsewhere = self.alone = 0
        self.taken: set[str] = set()  # entries that PyTorch composes on xla of operators that refuse nothing
        self.failures: dict[str, str] = {}
        self.slowest = (0.0, 0)

    def add(self, other: Calls) -> None:
        self.calls += other.calls
        self.refused += other.refused
        self.accepted += other.accepted
        self.otherwise += other.otherwise
        self.elsewhere += other.elsewhere
        self.alone += other.alone
        self.taken |= other.taken
        self.failures |= other.failures
        self.slowest = max(self.slowest, other.slowest)

    def figures(self) -> str:
        alike = self.refused - self.otherwise - self.accepted - self.elsewhere
        return (
            f"{self.calls:,} calls, {self.refused:,} refused by the CPU for shapes or dtypes; on xla {alike:,} in the "
            f"same words, {self.elsewhere} in those of the operators that PyTorch calls there instead "
            f"(taken: {', '.join(sorted(self.taken)) or 'none'}), {self.otherwise:,} in others, {self.accepted:,} "
            f"accepted; {self.alone} refused there alone; slowest {self.slowest[0]:.1f} s of CPU "
            f"(seed {self.slowest[1]})"
        )


def calls(seeds: Iterable[int], large: bool = False) -> Calls:
    """Make the call of each seed. What ``xla`` accepts, or refuses in other words, is a failure.

    ``large``: each is taken for too large to be made on the CPU, where one with sizes of 4 stands for it. (Of a large
    call it has sizes of 8; but the samples have few that are larger.) Entries in :data:`OF_NUMBERS` are left out.
    """
    if large:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rehearse, "_EACH", -1)
            patch.setattr(rehearse, "_SMALL", 4)
            for module, known in ((rehearse, "_taken"), (rehearse, "_accepted"), (infer, "_known")):
                patch.setattr(module, known, type(getattr(module, known))())  # else taken where they are small, too
            return _made(seeds, OF_NUMBERS)
    return _made(seeds, set())


def _made(seeds: Iterable[int], left_out: set[str]) -> Calls:
    done = Calls()
    for seed in seeds:
        began = time.process_time()
        one = spoilt_call(seed)
        done.calls += 1
        if one is not None and one.entry in left_out:
            one = None
        done.slowest = max(done.slowest, (time.process_time() - began, seed))
        if one is None:
            continue
        done.refused += bool(one.expected)
        if one.elsewhere:
            done.elsewhere += 1
            if not one.told:
                done.taken.add(one.entry)
        elif not one.alike:
            done.accepted += not one.told
            done.alone += not one.expected
            done.otherwise += bool(one.told and one.expected)
            said = f"    cpu: {one.expected or 'accepted'}\n    xla: {one.told or 'accepted'}"
            shown = f"seed {seed}: {one.entry} ({one.call})\n{said}"
            done.failures[f"{one.entry} ({one.call})"] = shown
    return done


def spoilt_call(seed: int) -> Refusal | None:
    """The call of ``seed``; ``None`` if both accept it, or the CPU refuses it because of values."""
    draw = random.Random(seed)
    name = draw.choice(_names())
    entry = _entries()[name]
    dtypes = [d for d in (torch.float32, torch.int64) if d in entry.supported_dtypes("cpu")]
    if not dtypes:
        return None
    samples = _samples(name, draw.choice(dtypes))
    return _outcome(draw, name, entry, draw.choice(samples)) if samples else None


_entries = cache(entries)


@cache
def _names() -> list[str]:
    return sorted(_entries().keys() - ON_THE_HOST)


@cache
def _samples(name: str, dtype: torch.dtype) -> list[Any]:
    torch.manual_seed(0)
    return list(islice(_entries()[name].sample_inputs("cpu", dtype, requires_grad=False), 12))


def _outcome(draw: random.Random, name: str, entry: Any, sample: Any) -> Refusal | None:
    leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    if any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in leaves):
        return None
    spoilable = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, int)) and leaf is not True]
    if not spoilable:
        return None
    at = draw.choice(spoilable)
    leaves[at], how = _spoilt(draw, leaves[at])
    if name in UNBOUNDED and not how.startswith("torch."):
        return None
    variants: list[tuple[str, Callable[..., Any]]] = [("", entry)]
    if entry.inplace_variant is not None:
        variants.append(("in place", entry.inplace_variant))
    if entry.supports_out:
        out = torch.empty(draw.choice([(0,), (2, 3)]), dtype=draw.choice(DTYPES))
        variants.append((f"out= of {out.dtype}", partial(entry, out=out)))
    variant, function = draw.choice(variants)
    args, kwargs = tree_unflatten(leaves, spec)
    call = partial(function, *args, **kwargs)
    expected = _refused(call, "cpu")
    if not expected:
        told = "" if (name, variant.partition(" of")[0]) in UNSEEN else _refused(call, "xla")
        alone = told and not NOT_ON_XLA.search(told)
        return Refusal(name, f"{variant} argument {at}: {how}", "", told, elsewhere=False) if alone else None
    if any(left_out.search(expected) for left_out in (OF_VALUES, OF_THE_DEVICE, NO_ANSWER)):
        return None
    one = Refusal(name, f"{variant} argument {at}: {how}", expected, _refused(call, "xla"), elsewhere=False)
    return one if one.alike else one._replace(elsewhere=_composed_otherwise(call, one))


def _composed_otherwise(call: partial[Any], one: Refusal) -> bool:
    """Does PyTorch call other operators on xla, up to the one that refuses on the CPU, and raises what is caught alike?

    Of tensors of other classes it composes some functions otherwise on the CPU, too: in the same words as on xla.
    """
    told, wanted = (text.partition(":")[0] for text in (one.told, one.expected))
    if told not in ("", wanted) and (told, wanted) != ("NotImplementedError", "RuntimeError"):  # which is its base
        return False
    here, there = _Called(), _Called()
    expected = _refused(call, "cpu", here)
    _refused(call, "xla", there)
    upto = len(here.operators) if here.refusing else None  # else what composes them refuses
    return one._replace(expected=expected).alike or there.operators[:upto] != here.operators


class _Called(TorchDispatchMode):
    """The operators that PyTorch calls, in this order, and whether the last one refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []
        self.refusing = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(str(func))
        self.refusing = True
        result = func(*args, **kwargs or {})
        self.refusing = False
        return result


def _spoilt(draw: random.Random, leaf: Any) -> tuple[Any, str]:
    if isinstance(leaf, int):
        value = leaf + draw.choice([-7, 7, 100])
        return value, f"{value}, not {leaf}"
    ways: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        ("no element", lambda x: x.new_empty(0)),
        ("one more dimension", lambda x: x.unsqueeze(0)),
        ("a number", lambda x: x.new_ones(())),
        ("flattened", lambda x: x.flatten()),
        ("one row more", lambda x: torch.cat([x, x[:1]]) if x.dim() else x.new_ones(2)),
        ("one column less", lambda x: x[..., 1:] if x.dim() else x.new_ones(3)),
    ]
    dtype = draw.choice(DTYPES)
    ways += [(str(dtype), lambda x: x.to(dtype))] * 3
    how, change = draw.choice(ways)
    return change(leaf.detach()).clone(), how


def _refused(call: partial[Any], device: str, watched: AbstractContextManager[Any] | None = None) -> str:
    """Type and first line of the error there; empty where the call is accepted. What it writes to are copies."""

    def there(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.clone().to(device)
        return device if isinstance(leaf, (str, torch.device)) and str(leaf) == "cpu" else leaf

    args, kwargs = tree_map(there, (call.args, call.keywords))
    with warnings.catch_warnings(), watched or nullcontext():
        warnings.simplefilter("ignore")
        try:
            call.func(*args, **kwargs)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""
