"""Random programs of views, writes in place, reductions, reads and barriers, and what running them tells.

A program is a list of statements of plain numbers. Each picks its operands from the tensors alive at that point, and
its arguments modulo their shapes: most are valid, and those that are not have to be refused alike. Nothing of a program
depends on the device it runs on.

Left out is what memory leaves to chance: reading and writing overlapping elements in one operation, where PyTorch does
not refuse it. Numbers stay small and have no more than one binary digit behind the point, so all arithmetic is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st

import xlaprof.runtime as xr

Tensor = torch.Tensor


class Statement(NamedTuple):
    """What to do, to which of the living tensors, with which other, and numbers to make arguments of."""

    verb: str
    target: int
    other: int
    a: int
    b: int


# -- views: (tensor, two numbers) -> a view -------------------------------------------------------------


def _dim(t: Tensor, a: int) -> int:
    """A dimension, counted from the front or the back; out of range for a tensor that has none."""
    return a % (2 * t.dim()) - t.dim() if t.dim() else a % 2


def _at(n: int, a: int) -> int:
    return a % (2 * n) - n if n else a


VIEWS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "select": lambda t, a, b: t.select(_dim(t, a), _at(t.shape[_dim(t, a)], b)),
    "from": lambda t, a, b: t.narrow(
        _dim(t, a), b % t.shape[_dim(t, a)], t.shape[_dim(t, a)] - b % t.shape[_dim(t, a)]
    ),
    "until": lambda t, a, b: t.movedim(_dim(t, a), 0)[: b % 4],
    "every": lambda t, a, b: t.movedim(_dim(t, a), 0)[a % 2 :: 1 + b % 3],
    "transpose": lambda t, a, b: t.transpose(_dim(t, a), _dim(t, b)),
    "t": lambda t, a, b: t.t(),
    "permute": lambda t, a, b: t.permute([(d * (1 if a % 2 else -1) + b) % t.dim() for d in range(t.dim())]),
    "flatten": lambda t, a, b: t.view(-1),
    "view": lambda t, a, b: t.view(*[n for n in t.shape if n != 1], 1),
    "regroup": lambda t, a, b: t.view(-1, 1 + a % 3),
    "merge": lambda t, a, b: t.flatten(_dim(t, a), _dim(t, b)),
    "unflatten": lambda t, a, b: t.unflatten(_dim(t, a), (-1, 1 + b % 2)),
    "unsqueeze": lambda t, a, b: t.unsqueeze(a % (t.dim() + 1)),
    "squeeze": lambda t, a, b: t.squeeze() if a % 2 else t.squeeze(_dim(t, b)),
    "expand": lambda t, a, b: t.expand(2 + a % 2, *t.shape),
    "expand ones": lambda t, a, b: t.expand([3 if n == 1 else n for n in t.shape]),
    "diagonal": lambda t, a, b: t.diagonal(a % 5 - 2, _dim(t, a), _dim(t, b)),
    "windows": lambda t, a, b: t.unfold(_dim(t, a), 1 + a % 2, 1 + b % 3),
    "strided": lambda t, a, b: t.as_strided((2, 2), (1 + a % 3, 2 * (1 + a % 3)), b % 4),
    "reversed strides": lambda t, a, b: t.as_strided((2, 3), (1, 2), None if a % 2 else b % 3),
    "chunk": lambda t, a, b: t.chunk(1 + a % 3, _dim(t, b))[-1],
    "split": lambda t, a, b: t.split(1 + a % 3, _dim(t, b))[0],
    "split sizes": lambda t, a, b: t.split([1, t.shape[_dim(t, a)] - 1], _dim(t, a))[b % 2],
    "unbind": lambda t, a, b: t.unbind(_dim(t, a))[b % 2],
    "tensor_split": lambda t, a, b: t.tensor_split((a % 3, 2 + b % 2), _dim(t, a))[1],
    "hsplit": lambda t, a, b: t.hsplit(2)[a % 2],
    "bits": lambda t, a, b: t.view(torch.uint8 if b % 2 else torch.int32) if not t.is_floating_point() else t.view(-1),
    "index": lambda t, a, b: t[..., None, a % 2] if b % 2 else t[None, ..., :1],
    "detach": lambda t, a, b: t.detach(),
    "data": lambda t, a, b: t.data,
    "alias": lambda t, a, b: t.view_as(t),
}


# -- writes: (tensor, another, two numbers) ------------------------------------------------------------


def _index(t: Tensor, a: int, b: int) -> Tensor:
    """Different positions along the first dimension."""
    n = t.shape[0]
    count = 1 + b % n
    return torch.tensor([(a + 2 * i) % n if n % 2 else (a + i) % n for i in range(count)], device=t.device)


def _set_item(t: Tensor, key: Any, value: Any) -> None:
    t[key] = value


#: those that set every element they touch to one number: right whatever shows what
UNIFORM: dict[str, Callable[[Tensor, Tensor, int, int], object]] = {
    "fill_": lambda t, o, a, b: t.fill_(a % 7 - 3),
    "zero_": lambda t, o, a, b: t.zero_(),
    "set all": lambda t, o, a, b: _set_item(t, ..., b % 5),
}

#: those that read no other of the living tensors
ALONE: dict[str, Callable[[Tensor, Tensor, int, int], object]] = {
    "add_": lambda t, o, a, b: t.add_(a % 5),
    "add_half_": lambda t, o, a, b: t.add_(a + 0.5),
    "neg_": lambda t, o, a, b: t.neg_(),
    "double_": lambda t, o, a, b: t.mul_(2) if b % 2 else t.add_(t),
    "clamp_": lambda t, o, a, b: t.clamp_(-4, a % 9),
    "data.sub_": lambda t, o, a, b: t.data.sub_(a % 3),
    "detach().add_": lambda t, o, a, b: t.detach().add_(1),
    "+=": lambda t, o, a, b: t.__iadd__(b % 3),
    "set row": lambda t, o, a, b: _set_item(t, a % max(t.shape[0], 1), b),
    "set step": lambda t, o, a, b: _set_item(t, slice(a % 2, None, 2), b),
    "set column": lambda t, o, a, b: _set_item(t, (..., -1), b),
    "set where": lambda t, o, a, b: _set_item(t, t > a % 5, b % 4),
    "set at": lambda t, o, a, b: _set_item(t, _index(t, a, b), a),
    "masked_fill_": lambda t, o, a, b: t.masked_fill_(t > b % 5, a % 4),
    "index_fill_": lambda t, o, a, b: t.index_fill_(0, _index(t, a, b), a),
    "index_add_": lambda t, o, a, b: t.index_add_(0, _index(t, a, b), torch.ones_like(t[_index(t, a, b)])),
    "index_copy_": lambda t, o, a, b: t.index_copy_(0, _index(t, a, b), torch.full_like(t[_index(t, a, b)], a)),
    "index_put_": lambda t, o, a, b: t.index_put_((_index(t, a, b),), torch.ones((), dtype=t.dtype, device=t.device)),
    "scatter_": lambda t, o, a, b: t.scatter_(0, _index(t, a, b).view(-1, *[1] * (t.dim() - 1)), b % 5),
    "scatter_add_": lambda t, o, a, b: t.scatter_add_(-1, torch.zeros_like(t, dtype=torch.int64), torch.ones_like(t)),
    "copy_ host": lambda t, o, a, b: t.copy_(torch.arange(a, a + t.numel()).reshape(t.shape)),
    "copy_ host row": lambda t, o, a, b: t.copy_(torch.tensor([a + 0.5])),
    "cumsum_": lambda t, o, a, b: t.clamp_(-2, 2).cumsum_(_dim(t, a)),
    "flip into itself": lambda t, o, a, b: t.copy_(t.flip(_dim(t, a))),
    "roll into itself": lambda t, o, a, b: t.copy_(t.roll(1 + b % 3, _dim(t, a))),
    "set flipped column": lambda t, o, a, b: _set_item(t, (..., -1), t[..., a % max(t.shape[-1], 1)].flip(0)),
    "set rolled row": lambda t, o, a, b: _set_item(t, a % max(t.shape[0], 1), t[b % max(t.shape[0], 1)].roll(1, 0)),
    "set permuted row": lambda t, o, a, b: _set_item(t, 0, t[-1].index_select(0, _index(t[-1], a, -1))),
    "shift": lambda t, o, a, b: _set_item(t, slice(1, None), t[:-1].clone()),
    "shift back": lambda t, o, a, b: _set_item(
        t.movedim(_dim(t, a), 0), slice(None, -1), t.movedim(_dim(t, a), 0)[1:] + 1
    ),
    "gather into itself": lambda t, o, a, b: t.copy_(t.gather(0, (t > a).long().clamp_max(t.shape[0] - 1))),
    "sort into itself": lambda t, o, a, b: t.copy_(t.sort(_dim(t, a), bool(b % 2)).values),
    "set sums": lambda t, o, a, b: _set_item(t, 0, t.sum(0).remainder(32)),
}

#: those that read another
TOGETHER: dict[str, Callable[[Tensor, Tensor, int, int], object]] = {
    "add_ other": lambda t, o, a, b: t.add_(o),
    "sub_ other": lambda t, o, a, b: t.sub_(o, alpha=1),
    "copy_ other": lambda t, o, a, b: t.copy_(o),
    "set other": lambda t, o, a, b: _set_item(t, slice(None), o),
    "set other row": lambda t, o, a, b: _set_item(t, a % max(t.shape[0], 1), o),
    "out=": lambda t, o, a, b: torch.add(o, a % 3, out=t) if o.shape == t.shape else t.zero_(),
    "maximum out=": lambda t, o, a, b: torch.maximum(o, o, out=t) if o.shape == t.shape else t.zero_(),
}


def _resize(t: Tensor, *size: int) -> None:
    before = t.untyped_storage().nbytes()
    if t.resize_(*size).untyped_storage().nbytes() > before:
        t.fill_(7)  # what PyTorch has there is anything


def _set(t: Tensor, o: Tensor, a: int, b: int) -> None:
    if o.dtype is not t.dtype:  # floats out of integers' bits are denormal, and XLA flushes those
        o = t
    before = o.untyped_storage().nbytes()
    t.set_(o.untyped_storage(), a % 3, (2,), (1 + b % 2,))
    if t.untyped_storage().nbytes() > before:
        t.set_(t.untyped_storage()).fill_(3)


#: those that change what the tensor shows, not what is there
RESHAPES: dict[str, Callable[[Tensor, Tensor, int, int], object]] = {
    "t_": lambda t, o, a, b: t.t_(),
    "transpose_": lambda t, o, a, b: t.transpose_(_dim(t, a), _dim(t, b)),
    "squeeze_": lambda t, o, a, b: t.squeeze_() if a % 2 else t.squeeze_(_dim(t, b)),
    "unsqueeze_": lambda t, o, a, b: t.unsqueeze_(a % (t.dim() + 1)),
    "as_strided_": lambda t, o, a, b: t.as_strided_((2, 2), (2, 1), a % 3),
    "resize_": lambda t, o, a, b: _resize(t, 1 + a % 2, 1 + b % 3),
    "grow": lambda t, o, a, b: _resize(t, 3 + a % 2, 5),
    "set_": lambda t, o, a, b: t.set_(o),
    "set_ storage": lambda t, o, a, b: _set(t, o, a, b),
    "data =": lambda t, o, a, b: setattr(t, "data", o.data),
}


def _count_down(t: Tensor, o: Tensor, a: int, b: int) -> Tensor:
    value = t.clone()
    for _ in range(b):
        if not bool(value.sum() > a):
            break
        value[..., -1] -= 2
    return value


#: (tensor, another, two numbers) -> a tensor of its own storage
VALUES: dict[str, Callable[[Tensor, Tensor, int, int], Tensor]] = {
    "sum": lambda t, o, a, b: t.sum().remainder(64),
    "sum over": lambda t, o, a, b: t.sum(_dim(t, a), keepdim=bool(b % 2)).remainder(64),
    "amax": lambda t, o, a, b: t.amax(_dim(t, a)),
    "min": lambda t, o, a, b: t.min(),
    "any": lambda t, o, a, b: (t > a).any(_dim(t, b)),
    "argmax": lambda t, o, a, b: (t.double() + torch.arange(t.numel(), device=t.device).view(t.shape) / 64).argmax(),
    "plus": lambda t, o, a, b: t + o,
    "clone": lambda t, o, a, b: t.clone(),
    "double": lambda t, o, a, b: t.double(),
    "to long": lambda t, o, a, b: t.long(),
    "to bool": lambda t, o, a, b: t > a % 5,
    "reshape": lambda t, o, a, b: t.reshape(-1),
    "cat": lambda t, o, a, b: torch.cat([t.reshape(-1), o.reshape(-1)])[:40],
    "take": lambda t, o, a, b: t[_index(t, a, b)],
    "where": lambda t, o, a, b: torch.where(t > a % 5, t, torch.zeros_like(t)),
    "flip": lambda t, o, a, b: t.flip(_dim(t, a)),
    "roll": lambda t, o, a, b: t.roll(a, _dim(t, b)),
    "gather": lambda t, o, a, b: t.gather(_dim(t, b), (t > a).long()),
    "scattered": lambda t, o, a, b: torch.zeros_like(t).scatter_add(0, (t > a).long() * (t.shape[0] - 1), t),
    "sorted": lambda t, o, a, b: t.sort(_dim(t, a), stable=True)[b % 2],
    "cumsum": lambda t, o, a, b: t.clamp(-2, 2).cumsum(_dim(t, a)),
    "topk": lambda t, o, a, b: t.double().topk(1 + b % 2, _dim(t, a)).values,
    "cond": lambda t, o, a, b: t + 1 if bool(t.sum() > a) else t - 1,
    "while": _count_down,
}

WRITES = UNIFORM | ALONE | TOGETHER
#: verbs by kind; a kind is drawn first
KINDS = [VIEWS, UNIFORM | ALONE, TOGETHER, RESHAPES, VALUES, ["sync", "sync", "read", "item", "drop"]]
MOST, LARGEST = 10, 60  # living tensors, elements of one


_verbs = st.one_of([st.sampled_from(sorted(kind)) for kind in (VIEWS, *KINDS)])
_number = st.integers(0, 7)
_statement = st.builds(Statement, _verbs, _number, _number, _number, _number)


def programs(least: int, most: int) -> st.SearchStrategy[list[Statement]]:
    """Programs of so many statements."""
    return st.lists(_statement, min_size=least, max_size=most)


bases = st.lists(
    st.tuples(
        st.sampled_from([(6,), (2, 3), (4, 3), (2, 3, 2), (1, 4), (3, 1, 2), (3, 3), (), (0, 2)]),
        st.sampled_from([torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool]),
    ),
    min_size=1,
    max_size=3,
)


# -- running -------------------------------------------------------------------------------------------


def _places(t: Tensor) -> list[int]:
    """Numbers of the elements of its storage that ``t`` shows, once for each time."""
    if 0 in t.shape:
        return []
    reach = 1 + t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return torch.arange(reach).as_strided(t.shape, t.stride(), t.storage_offset()).flatten().tolist()


def _by_chance(t: Tensor, others: list[Tensor]) -> bool:
    """Would writing ``t`` after reading ``others`` depend on the order in which memory is visited?

    Not where PyTorch refuses it: of what is expanded, and of two dense ranges that overlap in part.
    """
    expanded = any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride(), strict=True))
    places = _places(t)
    if len(set(places)) < len(places) and not expanded:
        return True
    for other in others:
        if other.untyped_storage() == t.untyped_storage() or other.data_ptr() == t.data_ptr() != 0:
            same = (t.shape, t.stride(), t.storage_offset()) == (other.shape, other.stride(), other.storage_offset())
            size = t.element_size(), other.element_size()
            if not same and (size[0] != size[1] or set(places) & set(_places(other))):
                return True
    return False


def state(t: Tensor) -> tuple[Any, ...]:
    """All that can be told of a tensor without its values."""
    return tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, t.is_contiguous(), t._version, t._is_view()


class Run:
    """The tensors of a program on one device, and what became of each statement."""

    def __init__(self, begin: list[tuple[tuple[int, ...], torch.dtype]], device: str) -> None:
        self.device = device
        self.tensors: list[Tensor] = []
        for shape, dtype in begin:
            values = torch.arange(torch.Size(shape).numel()).reshape(shape).remainder(11)
            self.tensors.append(values.to(dtype).clone().to(device))

    def go(self, program: list[Statement], skip: list[bool] | None = None) -> tuple[list[Any], list[bool]]:
        """Run ``program``; what each statement told (a value read, an error's type), and which were left out.

        Without ``skip`` it is decided here what depends on chance; the other device is told.
        """
        told: list[Any] = []
        left_out: list[bool] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i, statement in enumerate(program):
                left_out.append(self._chancy(statement) if skip is None else skip[i])
                try:
                    told.append(None if left_out[-1] else self._do(statement))
                except Exception as error:
                    told.append(type(error).__name__)
        return told, left_out

    def values(self) -> list[Tensor]:
        """Copies of all living tensors on the host, by one read."""
        if not self.tensors:
            return []
        flat = torch.cat([t.detach().reshape(-1).double() for t in self.tensors]).cpu()
        return [
            v.view(t.shape) for v, t in zip(flat.split([t.numel() for t in self.tensors]), self.tensors, strict=True)
        ]

    def _operands(self, s: Statement) -> tuple[Tensor, Tensor]:
        return self.tensors[s.target % len(self.tensors)], self.tensors[s.other % len(self.tensors)]

    def _chancy(self, s: Statement) -> bool:
        t, o = self._operands(s)
        if s.verb in TOGETHER:
            return _by_chance(t, [o])
        return s.verb in ALONE and _by_chance(t, [])

    def _do(self, s: Statement) -> Any:
        t, o = self._operands(s)
        if s.verb == "sync":
            if self.device == "xla":
                xr.sync()
        elif s.verb == "read":
            return t.tolist()
        elif s.verb == "item":
            return t.sum().remainder(64).item()
        elif s.verb == "drop":
            if len(self.tensors) > 1:
                del self.tensors[s.target % len(self.tensors)]
        elif s.verb in VIEWS:
            self._keep(VIEWS[s.verb](t, s.a, s.b))
        elif s.verb in VALUES:
            # Results are contiguous on xla, whatever the strides of what they are computed from.
            value = VALUES[s.verb](t, o, s.a, s.b)
            self._keep(value.clone(memory_format=torch.contiguous_format))
        elif s.verb in RESHAPES:
            RESHAPES[s.verb](t, o, s.a, s.b)
        else:
            WRITES[s.verb](t, o, s.a, s.b)
        return None

    def _keep(self, t: Tensor) -> None:
        if t.numel() <= LARGEST and t.dim() <= 5:
            if len(self.tensors) < MOST:
                self.tensors.append(t)
            else:
                self.tensors[-1] = t
