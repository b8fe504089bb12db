"""Handles and storages: what shares, what moves to another, what grows, and how to tell."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.dispatch.untyped_storage import XLAStorage

from .both import Story, agree, numbers


def _reshaped_in_place(device: str) -> object:
    t = numbers(device, 2, 1, 3)
    other = t.detach()
    told = [t.squeeze_() is t]
    told += [t.t_().stride(), t.unsqueeze_(1).stride(), t.transpose_(0, 2).stride(), t.swapdims_(0, 1).stride()]
    t[0].add_(10)
    told += [t.as_strided_((2, 2), (1, 2), 1).stride(), t.swapaxes_(0, 1).stride()]
    t[0].zero_()
    return t, other, told, t._version


def _smaller_and_back(device: str) -> object:
    t = numbers(device, 2, 3)
    other = t.detach()
    t.resize_(2, 2).add_(1)
    t.resize_(3, 2)  # what was cut off is still there
    part = other.view(-1)[2:4]
    part.resize_(3).mul_(2)
    return t, other, part, t.resize_as_(torch.empty(1, 5)), t.resize_((1, 1, 2, 2), memory_format=torch.channels_last)


def _larger(device: str) -> object:
    t = numbers(device, 3)
    other, part, storage = t.detach(), t[1:], t.untyped_storage()
    t.resize_(2, 3)[1] = 7
    other.add_(1)
    part.mul_(2)
    again = numbers(device, 1).set_(storage, 1, (5,))
    again[4] = 9
    return (
        t,
        other,
        part,
        again,
        storage.nbytes(),
        t.untyped_storage() == storage,
        torch.empty(0).to(device).resize_(0, 2),
    )


def _moved(device: str) -> object:
    a, b, c, d = numbers(device, 6), numbers(device, 2, 2), numbers(device, 3), numbers(device, 1)
    before = a.detach()
    a.set_(b)
    a.add_(10)
    c.set_(b.untyped_storage(), 1, (2,), (2,))
    c.mul_(2)
    d.set_(b, 0, (2, 2), (1, 2))
    d[0, 1] = 5
    c_is, d_is = c.is_set_to(d), d.is_set_to(b.t())
    return (
        a,
        b,
        c,
        d,
        before,
        c_is,
        d_is,
        a.is_set_to(b),
        numbers(device, 3).set_(),
        numbers(device, 1).set_(b.storage()),
    )


def _data(device: str) -> object:
    w = nn.Parameter(numbers(device, 4))
    y = w * w
    w.data.add_(1)  # not seen by autograd: y's gradient is of what w is now
    y.sum().backward()
    versions = [w._version, w.detach().add_(0)._version, w._version]
    other = numbers(device, 2, 2)
    w.data = other
    other.mul_(3)
    w.data[0] = 8
    return w, w.grad, other, versions, w.is_leaf


def _flat_parameters(device: str) -> object:
    flat = numbers(device, 6)
    parameters = [nn.Parameter(piece) for piece in flat.split([4, 2])]
    parameters[0].data = flat[:4].view(2, 2)
    with torch.no_grad():
        parameters[0].t().add_(10)
        parameters[1].zero_()
    return flat, parameters


def _swapped(device: str) -> object:
    a, b = numbers(device, 3), numbers(device, 2, 2)
    a_was, b_was = a.detach(), b.detach()
    torch.utils.swap_tensors(a, b)
    a.add_(1)
    return a, b, a_was, b_was


def _deep_copies(device: str) -> object:
    t = numbers(device, 3, 3)
    first, again, row, column = copy.deepcopy([t, t, t[1], t.t()[0]])
    row.add_(10)
    column.mul_(2)
    return t, first, first is again, row, column


STORIES: dict[str, Story] = {
    story.__name__.strip("_"): story
    for story in (
        _reshaped_in_place,
        _smaller_and_back,
        _larger,
        _moved,
        _data,
        _flat_parameters,
        _swapped,
        _deep_copies,
    )
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", sorted(STORIES))
def test_storage_is_shared_as_on_the_cpu(name: str) -> None:
    agree(STORIES[name])


REFUSED: dict[str, Story] = {
    "a negative size": lambda d: numbers(d, 3).resize_(2, -1),
    "data on another device": lambda d: setattr(numbers(d, 3), "data", numbers("meta", 3)),
    "a storage of another device": lambda d: numbers(d, 3).set_(numbers("meta", 3)),
    "a negative offset": lambda d: numbers(d, 3).as_strided((1,), (1,), -1),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_is_refused(name: str) -> None:
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError):
            REFUSED[name](device)


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_storages_are_told_apart() -> None:
    t = numbers("xla", 2, 3)
    part, other = t[1], t.clone()
    assert isinstance(t.untyped_storage(), XLAStorage)
    assert t.untyped_storage() == part.untyped_storage() == t.detach().untyped_storage() != other.untyped_storage()
    assert t.untyped_storage()._cdata == part.untyped_storage()._cdata
    assert part.data_ptr() - t.data_ptr() == 3 * 4
    assert t.storage().data_ptr() == part.storage().data_ptr() == t.data_ptr()
    end = t.data_ptr() + t.untyped_storage().nbytes()
    assert not t.data_ptr() <= other.data_ptr() < end
    before = t.data_ptr()
    t.add_(1)
    xr.sync()  # the values are elsewhere now
    assert t.data_ptr() == before
    assert numbers("xla", 0).data_ptr() == 0
    assert t.storage().size() == 6
    assert t.untyped_storage().device == t.device
    assert torch.tensor(t.untyped_storage().cpu().tolist(), dtype=torch.uint8).view(torch.float32).tolist() == [
        1.0, 2.0, 3.0, 4.0, 5.0, 6.0,
    ]  # fmt: skip
    with pytest.raises(NotImplementedError, match="resize the tensor"):
        t.untyped_storage().resize_(0)


def test_identities_are_never_given_twice() -> None:
    seen = set()
    for _ in range(50):
        start = numbers("xla", 200).data_ptr()
        assert not seen & set(range(start, start + 800))
        seen |= set(range(start, start + 800))


def test_gradients_through_operators_that_reshape_in_place() -> None:
    def story(device: str) -> object:
        x = numbers(device, 2, 1, 4).requires_grad_()
        y = x * 2
        a, b = y[:], y.view(2, 4)
        a.squeeze_()
        a.t_()
        a[1].mul_(3)
        b.t_()
        b.unsqueeze_(0)
        b[0, 2].copy_(x.sum() * torch.ones(2, device=device))
        before = y.sum()
        y.transpose_(0, 2)
        y[3].mul_(5)
        (y * y).sum().backward()
        assert x.grad is not None
        return x.grad, y, before, b, a.shape

    agree(story)


@pytest.mark.parametrize("operator", ["squeeze_", "t_", "transpose_"])
def test_a_tensor_that_keeps_its_gradient_changes_its_dimensions_in_place(operator: str) -> None:
    def story(device: str) -> object:
        x = numbers(device, 3, 4).requires_grad_()
        y = x * 2
        if operator == "squeeze_":
            y = y.unsqueeze(0)
        y.retain_grad()
        getattr(y, operator)(*[0, 1] * (operator == "transpose_"))
        (y * y).sum().backward()
        assert x.grad is not None
        return x.grad, y.detach(), y.grad

    agree(story)
