"""What everyday models call is recorded by a lowering, or composed by PyTorch's own kernels.

All else is right too, but goes through Python at each call, which takes ten times as long; and nothing tells of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xlaprof.runtime as xr
from xlaprof.runtime.dispatch import fallback
from xlaprof.runtime.lowering.registry import LOWERINGS, Unsupported, lower
from xlaprof.runtime.trace.evaluate import MISTAKES

Detours = Counter[str]


@pytest.fixture
def detours(monkeypatch: pytest.MonkeyPatch) -> Detours:
    """Operators that were computed without a lowering, and how often."""
    found: Detours = Counter()

    def note(op: Any, args: Any, kwargs: Any) -> Any:
        found[op.name] += 1
        return NotImplemented

    monkeypatch.setattr(fallback, "STEPS", (note, *fallback.STEPS))
    return found


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.words(x)))  # type: ignore[no-any-return]


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(4, 11),
    )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 4, batch_first=True)
        self.head = nn.Linear(4, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0])  # type: ignore[no-any-return]


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "transformer": (Transformer, lambda: torch.randint(11, (2, 5))),
    "convolutions": (convolutions, lambda: torch.randn(2, 3, 8, 8)),
    "recurrent": (Recurrent, lambda: torch.randn(2, 5, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_and_evaluation_take_no_detour(name: str, detours: Detours) -> None:
    make, data = MODELS[name]
    model, x = make().to("xla"), data().to("xla")
    with torch.autocast("xla", torch.bfloat16):
        model(x)
    logits = model(x).flatten(0, -2)
    nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device="xla")).backward()
    with torch.no_grad():
        model.eval()(x)
    with torch.inference_mode():
        model(x)
    assert not detours


def test_a_product_of_batches_is_views_and_one_product(detours: Detours) -> None:
    a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
    there = a.to("xla")
    with torch.inference_mode():
        c = there @ b.to("xla")
        c += 1
    torch.testing.assert_close(c.cpu(), a @ b + 1)
    assert not detours


# -- a lowering that is wrong -----------------------------------------------------------------------------


@pytest.fixture
def planted() -> Iterator[Any]:
    """An operator that adds one, with a lowering that forgets an element of vectors, and does not take matrices."""
    library = torch.library.Library("planted", "FRAGMENT")
    library.define("next(Tensor self) -> Tensor")
    library.impl("next", lambda x: x + 1, "CPU")
    library.impl("next", lambda x: torch.empty_like(x), "Meta")

    @lower("planted.next.default")
    def following(ctx: Any, x: Any) -> Any:
        if x.ndim > 1:
            raise Unsupported("matrices")
        return (x + 1)[:-1] if x.ndim else x + 1

    yield torch.ops.planted.next
    del LOWERINGS["planted.next.default"]
    library._destroy()


def test_a_lowering_that_fails_is_told_and_the_result_is_right(planted: Any) -> None:
    before = xr.metrics.counter_value("FailedLowering") or 0
    assert planted(torch.tensor(1.0, device="xla")).item() == 2
    assert planted(torch.ones(1, 2, device="xla")).tolist() == [[2, 2]]
    assert not MISTAKES  # what it says that it does not take is none
    assert planted(torch.ones(3, device="xla")).tolist() == [2, 2, 2]
    assert MISTAKES.pop("planted.next.default") == "WrongResult: result of shape (2,), PyTorch says (3,)"
    assert xr.metrics.counter_value("FailedLowering") == before + 1
