"""Every view operator shares its base's storage: a view to autograd, with strides over the base, written through.

The list is PyTorch's (``test/test_view_ops.py``), whose tests look at raw pointers for devices that have them; here
strides, offsets, ``_base`` and what a write does are looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import xlaprof.runtime as xr

from .both import agree, numbers, refused

View = Callable[[torch.Tensor], torch.Tensor]

#: of a tensor of shape (4, 1, 6)
VIEWS: dict[str, View] = {
    "select": lambda t: t.select(2, -2),
    "slice": lambda t: t[1:3, :, ::2],
    "ellipsis": lambda t: t[..., :2],
    "newaxis": lambda t: t[None, 1:, 0, None, 3],
    "narrow": lambda t: t.narrow(2, 1, 3),
    "transpose": lambda t: t.transpose(0, 2),
    "swapdims": lambda t: t.swapdims(0, 1),
    "swapaxes": lambda t: t.swapaxes(-1, 0),
    "mT": lambda t: t.mT,
    "mH": lambda t: t.mH,
    "t": lambda t: t[:, 0].t(),
    "T": lambda t: t[:, 0].T,
    "H": lambda t: t[:, 0].H,
    "adjoint": lambda t: t.adjoint(),
    "permute": lambda t: t.permute(2, 0, 1),
    "movedim": lambda t: t.movedim((0, 1), (2, 0)),
    "moveaxis": lambda t: t.moveaxis(0, 1),
    "view": lambda t: t.view(2, 12),
    "view_as": lambda t: t.view_as(torch.empty(3, 8)),
    "reshape": lambda t: t.reshape(-1),
    "reshape_as": lambda t: t.reshape_as(torch.empty(8, 3)),
    "ravel": lambda t: t.ravel(),
    "flatten": lambda t: t.flatten(1),
    "unflatten": lambda t: t.unflatten(2, (2, 3)),
    "squeeze": lambda t: t.squeeze(),
    "squeeze of one": lambda t: t.squeeze(1),
    "squeeze of some": lambda t: t.squeeze((0, 1)),
    "unsqueeze": lambda t: t.unsqueeze(-1),
    "expand": lambda t: t.expand(4, 5, 6)[:, 3],
    "expand_as": lambda t: t.expand_as(torch.empty(2, 4, 1, 6))[1],
    "broadcast_to": lambda t: t.broadcast_to(4, 2, 6)[:, 0],
    "diagonal": lambda t: t.diagonal(1, 0, 2),
    "unfold": lambda t: t.unfold(2, 2, 3),
    "as_strided": lambda t: t.as_strided((2, 3), (1, 7), 2),
    "as_strided of a part": lambda t: t[1:].as_strided((2, 2), (6, 1)),
    "split": lambda t: t.split(4, 2)[1],
    "split in sizes": lambda t: t.split([1, 3], 0)[1],
    "chunk": lambda t: t.chunk(3, 2)[1],
    "unbind": lambda t: t.unbind(2)[5],
    "tensor_split": lambda t: t.tensor_split((1, 3))[1],
    "hsplit": lambda t: t[:, 0].hsplit(3)[2],
    "vsplit": lambda t: t.vsplit(2)[0],
    "dsplit": lambda t: t.dsplit(2)[1],
    "integers' bits": lambda t: t.view(torch.int32),
    "halves of elements": lambda t: t[1:].view(torch.int16),
    "pairs of elements": lambda t: t.view(torch.float64),
    "complex": lambda t: torch.view_as_complex(t.view(4, 3, 2)),
    "imaginary part": lambda t: torch.view_as_complex(t.view(4, 3, 2)).imag,
    "real part": lambda t: torch.view_as_complex(t.view(4, 3, 2)).real,
    "alias": lambda t: torch.ops.aten.alias(t),
}


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_view_shows_its_base_and_is_written_through_whenever_the_barrier_falls(name: str) -> None:
    view = VIEWS[name]

    def story(device: str) -> object:
        base = numbers(device, 4, 1, 6)
        first, second = view(base), view(base)
        if device == "xla":
            xr.sync()
        # Seen by the base and by its other view. XLA flushes denormal floats, so bits are those of others.
        first.fill_({torch.int32: 1 << 30, torch.int16: 0x4040}.get(first.dtype, 3))
        before = second + 0
        base.mul_(2)  # seen by both views
        return base, first, before.reshape(-1), first._base is base, first._is_view(), base._version, first._version

    agree(story)


def test_no_view_where_pytorch_makes_a_copy() -> None:
    def story(device: str) -> object:
        t = numbers(device, 3, 4)
        index = torch.tensor([0, 2], device=device)
        copies = [
            t.t().reshape(12),
            t.t().flatten(),
            t.t().contiguous(),
            t[index],
            t[:, index],
            t.clone(),
            t.t().ravel(),
        ]
        for copy in copies:
            copy.zero_()
        same = [t.contiguous() is t, t.flatten(1, 1) is t, t.expand(3, 4) is t, t.to(device) is t, t.conj() is t]
        return t, [c._is_view() for c in copies], same

    agree(story)


def test_copies_of_views_are_no_views() -> None:
    def story(device: str) -> object:
        t, out, outs = numbers(device, 4, 4), numbers(device, 4), [numbers(device, 2, 4), numbers(device, 2, 4)]
        torch.diagonal_copy(t, out=out)
        torch.split_copy(t, 2, out=outs)
        copies = [torch.view_copy(t, (16,)), torch.expand_copy(t, (2, 4, 4)), *torch.unbind_copy(t), torch.t_copy(t)]
        t.zero_()
        return out, outs, copies

    agree(story)


def test_complex_numbers_and_their_parts_are_one_storage() -> None:
    def story(device: str) -> object:
        z = torch.view_as_complex(numbers(device, 3, 2)).clone()
        z.real.add_(1)
        z.imag = 5
        z.conj().imag.add_(2)  # the imaginary part itself goes down
        torch.view_as_real(z)[..., 1].mul_(2)
        z.conj()[1] = 1 + 1j
        torch._neg_view(z)[2] = 7
        return z, z.real, z.imag, z.conj().resolve_conj(), torch.view_as_real(z).as_strided((3,), (2,), 1)

    agree(story)


def test_a_view_has_the_strides_of_its_own_base_though_a_piece_of_the_same_shape_was_viewed_before() -> None:
    def told(device: str) -> list[object]:
        barrier = xr.sync if device == "xla" else lambda: None
        piece = numbers(device, 3, 4).split([1, 3], 1)[1]
        barrier()  # the piece has an array of its own now: an input of three by three, as the other tensor is
        other = numbers(device, 3, 3)
        barrier()
        told: list[object] = []
        for tensor in (piece, other, piece):
            view = tensor.view(3, 3, 1)
            told += [view.stride(), view.storage_offset(), view.is_contiguous(), view.cpu().tolist()]
            barrier()
        return told

    agree(told)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.view(5),
        lambda t: t.view(-1, -1),
        lambda t: t.t().view(12),
        lambda t: t[:0].view(-1, 0),
        lambda t: t.expand(3, 5),
        lambda t: t.expand(-1, 3, 4),
        lambda t: t.select(0, 3),
        lambda t: t.select(2, 0),
        lambda t: t[4],
        lambda t: t.narrow(1, 2, 3),
        lambda t: t.transpose(0, 2),
        lambda t: t.permute(0, 0),
        lambda t: t.squeeze(2),
        lambda t: t.unsqueeze(4),
        lambda t: t[0].t()[None, None].t(),
        lambda t: t.diagonal(0, 1, 1),
        lambda t: t[0].diagonal(),
        lambda t: t.unfold(0, 4, 1),
        lambda t: t.unfold(0, 1, 0),
        lambda t: t.unflatten(1, (3, 2)),
        lambda t: t.flatten(1, 0),
        lambda t: t.split(-1),
        lambda t: t.split([1, 1]),
        lambda t: t.split([4, -1]),
        lambda t: t.chunk(0),
        lambda t: t.unbind(2),
        lambda t: t[0, 0].unbind(),
        lambda t: t[0, 0].split(1),
        lambda t: t.tensor_split(0),
        lambda t: t[0, 0].tensor_split(2),
        lambda t: t.hsplit(3),
        lambda t: t.as_strided((3,), (5,), 2),
        lambda t: t.as_strided((3,), (-1,), 5),
        lambda t: t.as_strided((3,), (1, 1)),
        lambda t: t.view(torch.int16).t().view(torch.int32),
        lambda t: t[:, :3].view(torch.float64),
        lambda t: t[:, 1:3].view(torch.float64),
        lambda t: t[0, 0].view(torch.float64),
        lambda t: torch.view_as_complex(t),
        lambda t: torch.view_as_complex(t.t()[:2].t()[:, ::1].t().contiguous()[:, :2].t()),
        lambda t: torch.view_as_real(t),
        lambda t: t.imag,
        lambda t: t[0].mT,
        lambda t: t[None].H,
    ],
)
def test_what_cannot_be_a_view_is_refused_in_pytorchs_words(make: View) -> None:
    kind, _ = refused(lambda device: make(numbers(device, 3, 4)))
    assert issubclass(kind, Exception)
