"""What random programs are made of: statements of plain PyTorch, as text.

``{t}`` and ``{o}`` are two of the living tensors, the other fields :class:`Fields` fills in from the shape that ``{t}``
has there. Most statements are valid; those that are not have to be refused alike on every device.

Left out is what memory leaves to chance. In ``EXACT`` programs numbers stay small and have one binary digit behind the
point, so all arithmetic is exact; in ``SMOOTH`` ones nothing depends on which of two nearly equal numbers is larger.
"""

from __future__ import annotations

import random
from typing import Any

import torch

Tensor = torch.Tensor

SHAPES = [(6,), (2, 3), (4, 3), (2, 3, 2), (1, 4), (3, 1, 2), (3, 3), (), (0, 2)]
DTYPES = [torch.float32] * 3 + [torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16]


class Fields(dict[str, Any]):
    """Arguments for a statement about ``t``; each is drawn once, where the statement has it."""

    def __init__(self, draw: random.Random, names: dict[str, str], t: Tensor) -> None:
        super().__init__(names)
        self._draw, self._t = draw, t

    def __missing__(self, name: str) -> Any:
        self[name] = value = getattr(self, "_" + name)()
        return value

    def _size(self) -> int:
        """The size of the tensor along the dimension {d}."""
        t = self._t
        return t.shape[self["d"]] if -t.dim() <= self["d"] < t.dim() else 1

    def _d(self) -> int:
        """A dimension, counted from the front or the back; sometimes out of range for a tensor that has none."""
        n = self._t.dim()
        return self._draw.randrange(-n, n) if n else self._draw.choice((0, 0, -1, 1))

    def _e(self) -> int:
        return self._d()

    def _u(self) -> int:
        return self._draw.randint(-1, self._t.dim())

    def _i(self) -> int:
        """A position along {d}."""
        return self._draw.randrange(-self["size"], self["size"]) if self["size"] else 0

    def _row(self) -> int:
        return self._draw.randrange(max(len(self._t), 1)) if self._t.dim() else 0

    def _start(self) -> int:
        return self._draw.randint(0, self["size"])

    def _length(self) -> int:
        return self._draw.randint(0, self["size"] - self["start"])

    def _last(self) -> int:
        return max(self["size"] - 1, 0)

    def _order(self) -> list[int]:
        return self._draw.sample(range(self._t.dim()), self._t.dim())

    def _n(self) -> int:
        return self._draw.randint(0, 7)

    def _m(self) -> int:
        return self._draw.randint(-3, 4)

    def _k(self) -> int:
        return self._draw.randint(1, 3)

    def _half(self) -> float:
        return self._draw.randint(-4, 4) + 0.5

    def _flag(self) -> bool:
        return self._draw.random() < 0.5

    def _kept(self) -> str:
        return "keepdim=True" if self["flag"] else "keepdim=False"

    def _dtype(self) -> torch.dtype:
        return self._draw.choice(DTYPES)

    def _reduce(self) -> str:
        return self._draw.choice(["'sum'", "'amax'", "'amin'"])

    def _along(self, size: int, again: bool) -> str:
        count = self._draw.randint(0, max(size, 1)) or 1
        draw = self._draw.choices(range(size), k=count) if again and size else None
        at = draw or self._draw.sample(range(size), min(count, size))
        return f"torch.tensor({at}, dtype=torch.int64, device=device)"

    def _places(self) -> str:
        """Different positions along {d}."""
        return self._along(self["size"], False)

    def _places_again(self) -> str:
        """Positions along {d}, some more than once."""
        return self._along(self["size"], True)

    def _rows(self) -> str:
        return self._along(self._t.shape[0] if self._t.dim() else 1, False)

    def _rows_again(self) -> str:
        return self._along(self._t.shape[0] if self._t.dim() else 1, True)

    def _elements(self) -> str:
        return self._along(self._t.numel(), False)

    def _elements_again(self) -> str:
        return self._along(self._t.numel(), True)


#: expressions whose value is a view of {t}
VIEWS = """
{t}.select({d}, {i})
{t}.narrow({d}, {start}, {length})
{t}.movedim({d}, 0)[:{n}]
{t}.movedim({d}, 0)[{k}::{k}]
{t}[..., {m}:]
{t}.transpose({d}, {e})
{t}.t()
{t}.mT
{t}.permute({order})
{t}.view(-1)
{t}.view(*[n for n in {t}.shape if n != 1], 1)
{t}.view(-1, {k})
{t}.flatten({d}, {e})
{t}.unflatten({d}, (-1, {k}))
{t}.unsqueeze({u})
{t}.squeeze()
{t}.squeeze({d})
{t}.expand({k}, *{t}.shape)
{t}.expand([3 if n == 1 else n for n in {t}.shape])
{t}.diagonal({m}, {d}, {e})
{t}.unfold({d}, {k}, {k})
{t}.chunk({k}, {d})[-1]
{t}.split({k}, {d})[0]
{t}.split([1, {last}], {d})[-1]
{t}.unbind({d})[-1]
{t}.tensor_split(({n}, 3), {d})[1]
{t}.hsplit(2)[1]
{t}[..., None, {m}]
{t}[None, ..., :1]
{t}.swapaxes({d}, {e})
{t}.detach()
{t}.data
{t}.view_as({t})
"""

#: views that describe memory itself
OF_MEMORY = """
{t}.as_strided((2, 2), ({k}, 2), {n})
{t}.as_strided((2, 3), (1, 2))
{t}.view(torch.uint8 if {flag} else torch.int32) if not {t}.is_floating_point() else {t}.view(-1)
"""

#: statements that write one number to every element
UNIFORM = """
{t}.fill_({m})
{t}.zero_()
{t}[...] = {n}
"""

#: statements that write to {t} and read no other tensor
ALONE = """
{t}.add_({n})
{t}.add_({half})
{t}.neg_()
{t}.mul_(2)
{t}.add_({t})
{t}.remainder_(16)
{t}.abs_()
{t}.clamp_(-4, {n})
{t}.data.sub_({k})
{t}.detach().add_(1)
{t} += {k}
{t}[{row}] = {n}
{t}[{k}::2] = {n}
{t}[..., -1] = {n}
{t}[{t} > {n}] = {m}
{t}[{t} > {n}] += {k}
{t}[{rows}] = {n}
{t}[{rows}] += 1
{t}.masked_fill_({t} > {m}, {n})
{t}.masked_scatter_({t} > {m}, torch.arange({t}.numel(), device=device).to({t}.dtype))
{t}.index_fill_({d}, {places}, {n})
{t}.index_add_({d}, {places_again}, {t}.index_select({d}, {places_again}).clamp(-2, 2), alpha={k})
{t}.index_copy_({d}, {places}, {t}.index_select({d}, {places}).flip(0))
{t}.index_put_(({rows},), torch.tensor({n}, dtype={t}.dtype, device=device))
{t}.index_put_(({rows_again},), torch.tensor({n}, dtype={t}.dtype, device=device), accumulate=True)
{t}.index_put_(({rows_again},), {t}[{rows_again}].clamp(-1, 1), accumulate=True)
{t}.index_put_(({t} > {n},), torch.tensor({m}, dtype={t}.dtype, device=device), accumulate=True)
{t}.put_({elements}, torch.arange(9, device=device).to({t}.dtype)[:{elements}.numel()])
{t}.put_({elements_again}, torch.ones_like({elements_again}).to({t}.dtype), accumulate=True)
{t}.scatter_({d}, ({t} > {n}).long() * {last}, {m})
{t}.scatter_({d}, {t}.argsort({d}, stable=True), {t}.clone())
{t}.scatter_add_({d}, ({t} > {n}).long() * {last}, torch.ones_like({t}))
{t}.scatter_reduce_({d}, ({t} > {n}).long() * {last}, {t}.clone().clamp(-3, 3), {reduce}, include_self={flag})
{t}.copy_(torch.arange({n}, {n} + {t}.numel()).reshape({t}.shape))
{t}.copy_(torch.tensor([{half}]))
{t}.clamp_(-2, 2).cumsum_({d})
{t}.copy_({t}.flip({d}))
{t}.copy_({t}.roll({k}, {d}))
{t}[..., -1] = {t}[..., 0].flip(0)
{t}[:, 0] = {t}[:, -1].flip(0)
{t}[{row}] = {t}[-1].roll(1, 0)
{t}[0] = {t}[-1].index_select(0, torch.arange({t}[-1].shape[0], device=device).flip(0))
{t}[1:] = {t}[:-1].clone()
{t}.movedim({d}, 0)[:-1] = {t}.movedim({d}, 0)[1:] + 1
{t}.copy_({t}.gather({d}, ({t} > {n}).long() * {last}))
{t}.copy_({t}.sort({d}, descending={flag}).values)
{t}[0] = {t}.sum(0).remainder(32)
{t}.tril_({m})
{t}.fill_diagonal_({n})
{t}.swapaxes({d}, {e}).add_(1)
{t}.logical_not_()
"""

#: statements that write to {t} and read {o}
TOGETHER = """
{t}.add_({o})
{t}.sub_({o}, alpha=1)
{t}.copy_({o})
{t}[:] = {o}
{t}[{row}] = {o}
{t}.masked_fill_({o} > {n}, {m})
torch.where({o} > {n}, {t}, {t} * 0, out={t}) if {o}.shape == {t}.shape else None
torch.add({o}, {n}, out={t}) if {o}.shape == {t}.shape else None
torch.maximum({o}, {o}, out={t}) if {o}.shape == {t}.shape else None
{t}.index_copy_({d}, {places}, {o})
{t}.index_add_({d}, {places}, {o})
{t}[{rows}] = {o}
"""

#: statements that change what the tensor shows, not what is there
RESHAPES = """
{t}.t_()
{t}.transpose_({d}, {e})
{t}.squeeze_()
{t}.squeeze_({d})
{t}.unsqueeze_({u})
{t}.as_strided_((2, 2), (2, 1), {k})
resize({t}, {k}, {n})
{t}.set_({o})
set_storage({t}, {o}, {k}, {flag})
{t}.data = {o}.data
"""

#: expressions with storage of their own
VALUES = """
{t}.sum().remainder(64)
{t}.sum({d}, {kept}).remainder(64)
{t}.sum(({d}, {e}), {kept}).remainder(64)
{t}.clamp(-1, 1).prod({d}, {kept})
{t}.amax({d}, {kept})
{t}.amin(({d}, {e}), {kept})
{t}.max({d}, {kept}).values
{t}.min()
torch.stack({t}.aminmax(dim={d}, {kept}))
({t} > {n}).any({d}, {kept})
({t} > {n}).all()
({t} > {n}).sum({d})
{t}.count_nonzero({d})
({t}.double() + torch.arange({t}.numel(), device=device).view({t}.shape) / 64).argmax({d}, {kept})
{t}.median({d}, {kept}).values
{t}.kthvalue({k}, {d}).values
{t}.mode({d}).values
{t} + {o}
{t} - {n}
({t} * {o}).round().remainder(16)
{t} // 2
{t} % {k}
torch.maximum({t}, {o})
{t}.clamp({m}, {n})
{t}.clamp(max={o})
{t} == {o}
({t} > {n}) & ({o} > {m})
({t} > {n}) ^ {o}.bool()
torch.where({t} > {n}, {t}, torch.zeros_like({t}))
torch.where({t} > {o}, {t}, {o})
torch.where({t} > {n}, {half}, {t})
{t}.masked_fill({o} > {n}, {m})
{t}.clone()
{t}.to({dtype})
{t}.double()
{t}.long()
{t}.reshape(-1)
torch.cat([{t}.reshape(-1), {o}.reshape(-1)])[:40]
torch.stack([{t}, {t} + 1], {u})
{t}.repeat({k}, *[1] * {t}.dim())
{t}.repeat_interleave({k}, {d})
{t}.tril({m})
{t}.diff(dim={d})
{t}.flip({d})
{t}.roll({n}, {d})
torch.nn.functional.pad({t}, (1, {k}), value={m})
({t}.clamp(-2, 2) @ {o}.clamp(-2, 2).mT)
torch.outer({t}.clamp(-2, 2).flatten(), torch.arange({k}, device=device).to({t}.dtype))
{t}[{rows_again}]
{t}[{t} > {n}]
{t}[..., torch.tensor([0, -1, 0], device=device)]
{t}[{rows}, None]
{t}.index_select({d}, {places_again})
{t}.take({elements_again})
{t}.gather({d}, ({t} > {n}).long() * {last})
{t}.take_along_dim({t}.argsort({d}, stable=True), {d})
{t}.masked_select({t} > {n})
({t} > {n}).nonzero()
torch.zeros_like({t}).scatter({d}, {t}.argsort({d}, stable=True), {t})
torch.zeros_like({t}).scatter_add({d}, ({t} > {n}).long() * {last}, {t})
{t}.scatter_reduce({d}, ({t} > {n}).long() * {last}, {t}.clamp(-3, 3), {reduce}, include_self={flag})
{t}.index_add({d}, {places_again}, {t}.index_select({d}, {places_again}).clamp(-2, 2))
{t}.index_put(({rows_again},), {t}[{rows_again}].clamp(-2, 2), accumulate=True)
{t}.select_scatter({t}.select({d}, {i}) + 1, {d}, {i})
{t}.slice_scatter({t}[1:], 0, 0, -1)
{t}.sort({d}, stable=True, descending={flag})[0]
{t}.sort({d}, stable=True, descending={flag})[1]
{t}.msort()
{t}.topk({k}, {d}, largest={flag}).values
{t}.clamp(-2, 2).cumsum({d})
{t}.clamp(-1, 1).cumprod({d})
{t}.cummax({d}).values
{t}.cummin({d}).indices
{t}.unique()
{t}.long().clamp(0, 7).flatten().bincount()
torch.searchsorted({t}.flatten().sort().values, {o}.to({t}.dtype))
torch.bucketize({t}, torch.arange(0, 8, 2, device=device))
{t} + 1 if bool({t}.sum() > {n}) else {t} - 1
{t} * len({t}.tolist()) if {t}.dim() else {t} * 2
"""

#: statements with control flow
CONTROL = """
for _ in range({k}): {t}.clamp_(-9, 9).add_(1); barrier()
for at in range({t}.shape[0]): {t}[at] += at; barrier() if at % 2 else None
for row in {t}.unbind(0): row.add_({k})
while {t}.numel() and bool({t}.double().sum() < {n}): {t}.clamp_(-1, 9).add_(1)
{t}.mul_(-1) if bool(({t} > {n}).any()) else {t}.add_(1)
"""

#: control flow of PyTorch's own, which Dynamo compiles
HIGHER_ORDER = """
{r} = own(cond({t}.sum() > {n}, lambda x: x + 1, lambda x: x - {k}, ({t}.clone(),)))
{r} = own(while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x + 1), (torch.full([], {k}).to(device), own({t})))[1])
{r} = own(scan(lambda c, x: ((c + x).clamp(-9, 9), c - x), {t}[0].clone(), {t}.clone())[1])
"""

#: statements that tell something; a barrier tells nothing
TELLS = """
barrier()
barrier()
barrier()
print({t}.tolist())
print({t}.sum().remainder(64).item())
print({t}.shape, {t}.dtype, len({t}))
print(bool(({t} > {n}).any()), {t}.equal({o}))
del {t}
"""

#: -- programs that are differentiated: statements with a gradient, or without one on purpose
SMOOTH_WRITES = """
{t}.mul_({half})
{t}.sin_()
{t}.copy_({t}.clone() ** 2)
{t}.fill_({n})
{t}.zero_()
{t}.fill_({o}.sum().sin())
{t}.copy_({o}.flatten()[:{t}.shape[-1]].clone() if {t}.dim() else {o}.sum())
{t}.mul_({o}.clone().sin())
{t}.add_({o})
{t}.sub_({o}, alpha=1)
{t}.copy_({o})
{t}[:] = {o}
{t}[{row}] = {o}
{t}.masked_fill_({t} > {half}, {n})
{t}[{t} > {half}] = {o}.sum().cos()
{t}[{row}] = {o}.sum().sin()
{t}[{k}::2] = {n}
{t}[{rows}] = {o}.sum().cos()
{t}[..., -1] = {t}[..., 0].flip(0)
{t}.index_add_({d}, {places_again}, {t}.index_select({d}, {places_again}).cos())
{t}.index_copy_({d}, {places}, {t}.index_select({d}, {places}).sin())
{t}.index_put_(({rows_again},), {t}[{rows_again}].sin(), accumulate=True)
{t}.scatter_add_({d}, torch.zeros_like({t}, dtype=torch.int64), {t}.cos())
{t}.scatter_({d}, torch.zeros_like({t}, dtype=torch.int64), {n})
{t}.copy_({t}.tanh().cumsum({d}))
{t}.clamp_({m}, {n})
{t}.tril_({m})
with torch.no_grad(): {t}.mul_({m})
{t}.data.mul_({m})
{t}.detach().add_(1)
{t}.t_()
{t}.transpose_({d}, {e})
{t}.squeeze_()
{t}.unsqueeze_({u})
{t}.requires_grad_()
{t}.retain_grad()
for _ in range({k}): {t}.sin_(); barrier()
for row in {t}.unbind(0): row.mul_({k})
"""
SMOOTH_VALUES = """
{t}.sum({d}, {kept}).sin()
{t}.mean({d}, {kept})
{t}.tanh().prod({d}, {kept})
{t}.amax({d}, {kept})
{t}.logsumexp({d}, {kept})
{t}.softmax({d})
{t}.log_softmax({d})
{t}.var({d}, {kept})
{t}.norm()
{t} + {o}
({t} * {o}).sin()
{t} / ({o}.abs() + 1)
{t}.clone()
{t}.reshape(-1)
{t}.sin().exp()
{t}.sigmoid()
torch.where({t} > {half}, {t}, {o})
torch.lerp({t}, {o}, 0.25)
torch.addcmul({t}, {t}, {t}, value=0.5).sin()
torch.cat([{t}.reshape(-1), {o}.reshape(-1)])[:40]
torch.stack([{t}, {t}.cos()], {u})
({t}.sin() @ {o}.cos().mT)
{t}.flip({d})
{t}.roll({n}, {d})
{t}.diff(dim={d})
{t}.tanh().cumsum({d})
{t}.tanh().cumprod({d})
{t}.logcumsumexp({d})
{t}[{rows_again}]
{t}.index_select({d}, {places_again})
{t}.gather({d}, torch.zeros_like({t}, dtype=torch.int64))
{t}.take({elements_again})
{t}.index_put(({rows_again},), {t}[{rows_again}].cos(), accumulate=True)
{t}.scatter_add({d}, torch.zeros_like({t}, dtype=torch.int64), {t}.sin())
{t}.select_scatter({t}.select({d}, {i}).sin(), {d}, {i})
torch.nn.functional.pad({t}, (1, {k}), value=0.5)
torch.utils.checkpoint.checkpoint(lambda x: (x.sin() + 1).cos(), {t}, use_reentrant=False)
{t}.sin() if bool({t}.sum() > {half}) else {t}.cos()
"""
SMOOTH_TELLS = """
barrier()
barrier()
print(round({t}.tanh().sum().item(), 4))
print([g is None for g in torch.autograd.grad({t}.sum(), [l0, l1], retain_graph=True, allow_unused=True)])
{t}.sum().backward(retain_graph=True)
l0.grad = None
del {t}
"""


def _lines(*texts: str) -> list[str]:
    return [line for text in texts for line in text.strip().splitlines()]


def _made(*texts: str) -> list[str]:
    return ["{r} = " + line for line in _lines(*texts)]


def _own(text: str) -> list[str]:
    """Results are contiguous on xla, whatever the strides of what they are computed from."""
    return [f"{{r}} = own({line})" for line in _lines(text)]


#: families of statements; a family is drawn first
EXACT = {
    "view": _made(VIEWS, VIEWS, OF_MEMORY),
    "view again": _made(VIEWS),
    "set": _lines(UNIFORM),  # right whatever shows what
    "write": _lines(ALONE),
    "write again": _lines(ALONE),
    "write from another": _lines(TOGETHER),
    "reshape": _lines(RESHAPES),
    "value": _own(VALUES),
    "value again": _own(VALUES),
    "control": _lines(CONTROL),
    "tell": _lines(TELLS),
    "tell again": _lines(TELLS),
}
SMOOTH = {
    "view": _made(VIEWS),
    "view again": _made(VIEWS),
    "write": _lines(SMOOTH_WRITES),
    "write again": _lines(SMOOTH_WRITES),
    "value": _own(SMOOTH_VALUES),
    "tell": _lines(SMOOTH_TELLS),
}
