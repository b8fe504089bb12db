"""Writes in place: what they may write to, what they read while they do, and what they convert."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import xlaprof.runtime as xr

from .both import Story, agree, numbers, refused

Tensor = torch.Tensor

# -- what may not be written --------------------------------------------------------------------------

EXPANDED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add_": lambda e, o: e.add_(1),
    "mul_": lambda e, o: e.mul_(o),
    "copy_": lambda e, o: e.copy_(o),
    "copy_ from the host": lambda e, o: e.copy_(torch.ones(3, 4)),
    "exp_": lambda e, o: e.exp_(),
    "clamp_": lambda e, o: e.clamp_(0, 1),
    "addcmul_": lambda e, o: e.addcmul_(o, o),
    "cumsum_": lambda e, o: e.cumsum_(0),
    "lerp_": lambda e, o: e.lerp_(o, 0.5),
    "uniform_": lambda e, o: e.uniform_(),
    "index_add_": lambda e, o: e.index_add_(0, torch.tensor([0, 1, 2], device=o.device), o),
    "index_copy_": lambda e, o: e.index_copy_(0, torch.tensor([0, 1, 2], device=o.device), o),
    "scatter_": lambda e, o: e.scatter_(0, torch.zeros_like(o, dtype=torch.int64), 1.0),
    "scatter_add_": lambda e, o: e.scatter_add_(0, torch.zeros_like(o, dtype=torch.int64), o),
    "put_": lambda e, o: e.put_(torch.tensor([0], device=o.device), o[0, :1]),
    "masked_scatter_": lambda e, o: e.masked_scatter_(o > 1, o),
    "an item": lambda e, o: e.__setitem__(1, 5.0),
    "a row": lambda e, o: e.__setitem__(1, o[0]),
    "out=": lambda e, o: torch.add(o, 1, out=e),
}


@pytest.mark.parametrize("name", sorted(EXPANDED))
def test_what_is_expanded_is_not_written(name: str) -> None:
    _, message = refused(lambda device: EXPANDED[name](numbers(device, 3, 1).expand(3, 4), numbers(device, 3, 4)))
    assert message.startswith(
        "unsupported operation: more than one element of the written-to tensor refers to a single"
    )


@pytest.mark.filterwarnings("ignore:Use of")
def test_one_number_may_be_written_to_what_is_expanded() -> None:
    def story(device: str) -> object:
        base, mask = numbers(device, 4, 1), numbers(device, 4, 3) > 4
        rows = base.expand(4, 3)
        rows[1:2].fill_(9)
        rows.masked_fill_(mask, 7)
        rows[3, 2] = 5
        return base, rows

    agree(story)


OVERLAPPING: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda t: t[1:].add_(t[:-1]),
    "+=": lambda t: t[1:].__iadd__(t[:-1]),
    "copy_": lambda t: t[1:].copy_(t[:-1]),
    "a slice": lambda t: t.__setitem__(slice(1, None), t[:-1]),
    "the transpose, added": lambda t: t.view(3, 3).add_(t.view(3, 3).t()),
    "the transpose, copied": lambda t: t.view(3, 3).copy_(t.view(3, 3).t()),
    "out=": lambda t: torch.exp(t[:-1], out=t[1:]),
    "gather": lambda t: torch.gather(t, 0, torch.arange(9, device=t.device), out=t),
    "index_add_": lambda t: t.index_add_(0, torch.arange(9, device=t.device), t),
    "index_copy_": lambda t: t.index_copy_(0, torch.arange(8, device=t.device), t[1:]),
    "items": lambda t: t.__setitem__(torch.tensor([0, 1], device=t.device), t[7:]),
}


@pytest.mark.parametrize("name", sorted(OVERLAPPING))
def test_what_is_read_is_not_written_in_part(name: str) -> None:
    _, message = refused(lambda device: OVERLAPPING[name](numbers(device, 9)))
    assert message.startswith(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer"
    )


def test_what_is_read_may_be_written_whole() -> None:
    def story(device: str) -> object:
        t = numbers(device, 6)
        t.add_(t)
        t[:].mul_(t)
        torch.neg(t, out=t)
        t[:3] = t[3:]
        t[::2] += t[1::2]
        t.copy_(t)
        return t, t._version

    agree(story)


@pytest.mark.parametrize("write", ["mul_", "copy_", "zero_", "swap"])
def test_what_was_copied_stays_when_its_source_is_overwritten(write: str) -> None:
    """As a target network's weights, set to those that the optimizer then changes, in one step."""

    def story(device: str) -> object:
        source, target = numbers(device, 3, 4), torch.zeros(3, 4).to(device)
        seen = []
        for _ in range(3):
            kept = target.clone() if write == "swap" else None
            target.copy_(source)
            if kept is not None:
                source.copy_(kept)
            elif write == "copy_":
                source.copy_(source * 2)
            else:
                getattr(source, write)(*[1.5] * (write == "mul_"))
            if device == "xla":
                xr.sync()
            seen += [target.clone(), source.clone()]
        return seen, target, source

    agree(story)


STORIES: dict[str, Story] = {
    "a fraction into integers": lambda d: numbers(d, 3, dtype=torch.int32).add_(1.5),
    "a float tensor into integers": lambda d: numbers(d, 3, dtype=torch.int32).mul_(numbers(d, 3)),
    "true division of integers": lambda d: numbers(d, 3, dtype=torch.int32).div_(2),
    "an integer into bools": lambda d: (numbers(d, 3) > 1).add_(2),
    "a result that is wider": lambda d: numbers(d, 3).add_(numbers(d, 2, 3)),
    "a copy that does not fit": lambda d: numbers(d, 4, 3).copy_(numbers(d, 4)),
    "a copy from the host that does not fit": lambda d: numbers(d, 4, 3).copy_(numbers("cpu", 4)),
    "a row that does not fit": lambda d: numbers(d, 4, 3).__setitem__(slice(1, None), numbers(d, 2)),
    "out= of another type": lambda d: torch.add(numbers(d, 3), 1, out=numbers(d, 3, dtype=torch.int32)),
    "out= that requires a gradient": lambda d: torch.add(numbers(d, 3), 1, out=numbers(d, 3).requires_grad_()),
    "a leaf": lambda d: numbers(d, 3).requires_grad_().add_(1),
    "a view of a leaf": lambda d: numbers(d, 3).requires_grad_()[1:].add_(1),
    "one of several outputs": lambda d: (numbers(d, 6).requires_grad_() * 2).split(3)[0].add_(1),
    "a row of an unbound": lambda d: (numbers(d, 2, 3).requires_grad_() * 2).unbind()[0].t_(),
    "the size of what requires a gradient": lambda d: numbers(d, 6).requires_grad_().resize_(3),
    "a view, detached in place": lambda d: (numbers(d, 6).requires_grad_() * 2)[1:].detach_(),
}


@pytest.mark.parametrize("name", sorted(STORIES))
def test_what_cannot_be_written_is_refused_in_pytorchs_words(name: str) -> None:
    kind, _ = refused(STORIES[name])
    assert kind is RuntimeError


# -- items --------------------------------------------------------------------------------------------


def test_items_of_every_kind() -> None:
    def story(device: str) -> object:
        t, rows = numbers(device, 4, 6), torch.tensor([0, 3], device=device)
        t[0] = 1
        t[1, ::2] = numbers(device, 3)
        t[1::2, -1] = numbers(device, 2, dtype=torch.int64)
        t[t > 20] = 0
        t[:, t[0] > 5] = -1
        t[rows] += 1
        t[rows, rows] = numbers(device, 2) * 100
        t[2:, 1:3] = numbers(device, 2, 1)
        t[..., None, 4] = 8
        t[2] = torch.tensor([1.0, 2, 3, 4, 5, 6])
        t[3, 3] = torch.tensor(7)
        t[True] = t[None] + 1
        t.t()[1][t.t()[1] > 2] = 3
        return t

    agree(story)


def test_scattering_through_views() -> None:
    def story(device: str) -> object:
        t = numbers(device, 4, 4)
        one, two = torch.tensor([1], device=device), torch.tensor([[0, 1]], device=device)
        t.t().index_fill_(0, one, 9.0)
        t[1:].index_add_(0, one, numbers(device, 1, 4))
        t[:, ::2].index_copy_(1, one, numbers(device, 4, 1))
        t.t().scatter_(0, two, 5.0)
        t[1:].scatter_add_(0, two, numbers(device, 1, 2))
        t.diagonal().masked_fill_(t.diagonal() > 4, -1)
        t[:, 1].masked_scatter_(t[:, 1] > 2, numbers(device, 4))
        t.t()[2:].put_(torch.tensor([1, 5], device=device), numbers(device, 2))
        t.t().index_put_((one, one), numbers(device, 1), accumulate=True)
        t[2:].fill_diagonal_(6)
        return t

    agree(story)


def test_slices_of_every_step_and_position() -> None:
    def story(device: str) -> object:
        t = torch.zeros(9, 7).to(device)
        for i, (start, stop, step) in enumerate(
            [(0, 9, 1), (1, 9, 2), (2, 8, 3), (0, 9, 4), (5, 5, 1), (-2, 99, 1), (7, 3, 1)]
        ):
            t[start:stop:step, i] = i + 1
            t.t()[6 - i, start:stop:step] += 10 * i
        return t

    agree(story)


# -- copies -------------------------------------------------------------------------------------------


def test_copies_between_devices_types_and_shapes() -> None:
    def story(device: str) -> object:
        t = numbers(device, 3, 4)
        there, ints, host = (
            torch.zeros(4, 3).to(device),
            torch.zeros(3, 4, dtype=torch.int16).to(device),
            torch.zeros(3, 4),
        )
        there.copy_(t.t())
        there[1:].t().copy_(torch.full((3,), 2.5)[:, None])
        ints.copy_(there.t() * 1.5)
        ints[:, 1] = numbers(device, 3) * 2.75
        host.copy_(t)
        host.t()[1:].copy_(t.t()[:3])
        host[0].copy_(ints[0])
        bools = torch.zeros(4, dtype=torch.bool).to(device)
        bools.copy_(t[0])
        z = torch.zeros(2, dtype=torch.complex64).to(device)
        z.copy_(t[1, :2])
        z[1].copy_(torch.tensor(2 + 1j).conj())
        empty = torch.empty(2, 2).to(device).copy_(torch.ones(2))
        return t, there, ints, host, bools, z, empty, there.copy_(there)._version

    agree(story)


def test_host_memory_may_change_after_a_copy_of_it() -> None:
    host = torch.ones(4)
    there = torch.zeros(8).to("xla")
    there[2:6].copy_(host)
    host.zero_()
    assert there.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


def test_where_a_view_shows_an_element_twice_the_last_value_stays() -> None:
    def story(device: str) -> object:
        t = numbers(device, 7)
        windows = t.unfold(0, 3, 2)
        windows.copy_(numbers(device, 3, 3) * 10)
        return t, windows

    agree(story)
