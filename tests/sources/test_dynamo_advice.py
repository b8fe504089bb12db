"""Advice is tried: the program as it is, and as the advice says. What was advised against is gone, or less.

Each case is a program as users write it, the words of the advice it gets, and the program that follows these words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._dynamo.decorators import mark_unbacked

from tests.sources.advised import Case, T, calls, times, with_config
from tests.sources.changing_values import CHANGING
from tests.sources.kept_lists import built, joined, kept, recent, sounded, sung, voiced, weighted
from tests.sources.made_anew import Distances, Gated, gate, gates
from tests.sources.needed_numbers import Buffered, Counting, Looping, cutting, rolled, turned_outside
from tests.sources.observed import Observed, observing
from xlaprof.events import DynamoCompile

# torch's own modules, which Dynamo imports while it compiles
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def at_times(*, read: bool) -> Callable[[], Any]:  # a schedule's
    def program() -> None:
        fast = torch.compile(times, backend="eager")
        for t in torch.linspace(0.9, 0.1, 4):
            _ = fast(T(3), t.item()) if read else fast(T(3), t)

    return program


def listed(x: Any) -> Any:
    return T(3) * list(range(x.shape[0]))[-1] + x.sum()


def marked(mark: Callable[[Any, int], Any], *sizes: int) -> Iterator[Callable[[], Any]]:
    def make(size: int) -> Any:
        x = T(size, 3)
        mark(x, 0)
        return (x,)

    return (lambda size=size: make(size) for size in sizes)


def sizes(*of: int) -> Iterator[Any]:
    return ((T(size, 3),) for size in of)


def counted() -> None:
    model = Counting(2)
    fast = torch.compile(model, backend="eager")
    for model.count in (2, 3, 4):
        fast(T(3))


def counted_in_a_buffer() -> None:
    model = Buffered()
    fast = torch.compile(model, backend="eager")
    for count in (2, 3, 4):
        model.count.fill_(count)
        fast(T(3))


def turned(same: bool) -> list[Any]:
    return [tuple(T(3, 4).t().contiguous() if same else T(3, 4).t() for _ in "xk"), (T(4, 3), T(4, 3))]


def columns(same: bool) -> list[Any]:
    """One column of four numbers, from a row that was turned, then made as one."""
    form = torch.contiguous_format if same else torch.preserve_format
    return [(torch.randn(1, 4).t().clone(memory_format=form).detach(),), (torch.randn(4, 1),)]


def compiled_objects(*models: Any) -> Callable[[], Any]:
    """A program that compiles each of several objects, which share the versions of their class."""

    def program() -> None:
        with torch._dynamo.config.patch(recompile_limit=3):
            for model in models:
                model.compile(backend="eager")
                model(T(3))

    return program


def summed(x: Any, parts: Any) -> Any:
    for part in parts:
        x = x + part
    return x


def chosen(x: Any, name: str) -> Any:
    return x * {"a": 2.0, "b": 3.0}[name]


def applied(x: Any, model: Any) -> Any:
    return model.function(x)


def optional(x: Any, mask: Any = None) -> Any:
    return x * 2 if mask is None else x * mask


def dropped(*modes: bool) -> Callable[[], Any]:
    drop = torch.nn.Dropout(0.5)

    def program() -> None:
        fast = torch.compile(lambda x: drop(x), backend="eager")
        for mode in modes:
            drop.train(mode)
            fast(T(3))

    return program


def in_modes(*modes: Any) -> Callable[[], Any]:
    def program() -> None:
        fast = torch.compile(times, backend="eager")
        for mode in modes:
            with mode():
                fast(T(3))

    return program


def bounded(x: Any) -> Any:
    return x * 2 if x.shape[0] > 4 else x * 3


class Chosen(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any) -> Any:
        return x.sin() if self.kind == "sin" else x.cos()


def of_kinds(*kinds: str) -> Callable[[], Any]:
    def program() -> None:
        model = Chosen(kinds[0])
        fast = torch.compile(model, backend="eager")
        for model.kind in kinds:
            fast(T(3))

    return program


def scaled(x: Any, options: Any) -> Any:
    return x * 2 if hasattr(options, "scale") else x + 1


def with_options(*, at_first: bool) -> Callable[[], Any]:
    def program() -> None:
        options = SimpleNamespace()
        fast = torch.compile(scaled, backend="eager")
        if at_first:
            options.scale = 1
        fast(T(3), options)
        options.scale = 1
        fast(T(3), options)

    return program


def attended(x: Any, cache: Any) -> Any:
    return x + cache.sum()


def parameters(**config: bool) -> Callable[[], Any]:
    def program() -> None:
        with torch._dynamo.config.patch(**config):
            calls(times, *((torch.nn.Parameter(T(size, 3)),) for size in (4, 5, 6)))()

    return program


def called(x: Any, function: Any) -> Any:
    return function(x)


def both(x: Any, y: Any) -> Any:
    return x * 2 + y


def backends(*functions: Any) -> Callable[[], Any]:
    def program() -> None:
        for one in functions:
            torch.compile(times, backend=one)(T(3))

    return program


def backend() -> Any:
    return lambda graph, inputs: graph.forward


def scheduled(lr: Any) -> Callable[[], Any]:
    def program() -> None:
        weight = torch.nn.Parameter(T(3))
        optimizer = torch.optim.SGD([weight], lr=lr)
        step = torch.compile(optimizer.step, backend="eager")
        for i in range(4):
            weight.grad = T(3)
            step()
            if isinstance(lr, torch.Tensor):
                optimizer.param_groups[0]["lr"].fill_(0.1 / (i + 2))
            else:
                optimizer.param_groups[0]["lr"] = 0.1 / (i + 2)

    return program


X = (T(3),)
LENGTHS = [*sizes(4, 6, 9, 5, 6, 9, 4, 6)]
one_backend = backend()
mark_dynamic = torch._dynamo.maybe_mark_dynamic
objects = [SimpleNamespace(function=torch.nn.Identity().forward) for _ in range(2)]

RECOMPILATIONS = [
    Case(
        "size",
        calls(times, *sizes(4, 5)),
        " dynamic before the first call, ",
        calls(times, *marked(mark_dynamic, 4, 5)),
    ),
    Case(  # mark_dynamic would raise ConstraintViolationError
        "size that the code needs",
        calls(listed, *sizes(4, 5)),
        "maybe_mark_dynamic(x, 0), or compile with dynamic=True; or pad",
        calls(listed, *sizes(5, 5)),
    ),
    Case("size, dynamic=True", calls(times, *sizes(4, 5)), "dynamic=True", calls(times, *sizes(4, 5), dynamic=True)),
    Case("last batch", calls(times, *sizes(8, 8, 5)), "pad the last batch to 8", calls(times, *sizes(8, 8, 8))),
    Case(
        "sizes, dynamic=False",
        calls(times, *sizes(4, 5, 6, 7), dynamic=False),
        "torch._dynamo.maybe_mark_dynamic(x, 0), or compile without dynamic=False",
        calls(times, *marked(mark_dynamic, 4, 5, 6, 7), dynamic=False),
    ),
    Case(
        "objects of a class that loop",
        compiled_objects(*map(Looping, (2, 3, 4, 5, 6))),
        "Give the objects of the class one ",
        compiled_objects(*map(Looping, (2, 2, 2, 2, 2))),
    ),
    Case(
        "objects of a class",
        compiled_objects(*map(Counting, (2, 3, 4, 5, 6))),
        "Keep self.count in a tensor (a buffer, if it is a module's), where the code only computes with it",
        compiled_objects(*map(Buffered, (2, 3, 4, 5, 6))),
    ),
    Case(
        "two sizes, dynamic=False",
        calls(times, *((T(n), T(n)) for n in (4, 5, 6, 7)), dynamic=False),
        "Compile without dynamic=False",
        calls(times, *((T(n), T(n)) for n in (4, 5, 6, 7))),
        left=1,
    ),
    Case("size of 1", calls(times, *sizes(8, 1, 8)), "to 2 or more where it is 1", calls(times, *sizes(8, 8, 8))),
    Case("unbacked", calls(times, *sizes(8, 1)), "mark_unbacked(x, 0)", calls(times, *marked(mark_unbacked, 8, 1))),
    Case(
        "size of 1 among others",
        calls(times, *sizes(8, 1, 5)),
        "2 or more where it is 1, and mark the dimension dynamic: torch._dynamo.maybe_mark_dynamic(x, 0)",
        calls(times, *marked(mark_dynamic, 8, 2, 5)),
    ),
    Case(
        "constant size",
        calls(listed, *sizes(4, 5, 6)),
        "needs the size as a number",
        calls(listed, *sizes(4, 6, 6)),
        left=1,
    ),
    Case(
        "turns of a loop",
        calls(rolled, *((T(n, 3), T(3)) for n in (4, 7, 9))),
        "what one turn computes",
        turned_outside,
    ),
    Case("rank", calls(times, (T(4, 3),), (T(3),)), "unsqueeze", calls(times, (T(4, 3),), (T(4, 3),))),
    Case(
        "layout",
        calls(times, *turned(False)),
        " before the call, and the same for",
        calls(times, *turned(True)),
    ),
    Case(
        "layout of a column",
        calls(times, *columns(False)),
        "dimension 1 has the size 1, x.clone(memory_format=torch.contiguous_format)",
        calls(times, *columns(True)),
    ),
    Case("dtype", calls(times, X, (T(3).double(),)), "to one dtype before the call", calls(times, X, X)),
    Case(
        "requires_grad",
        calls(times, X, (T(3, requires_grad=True),)),
        "Call it with tensors that agree in requires_grad",
        calls(times, X, (T(3, requires_grad=True).detach(),)),
    ),
    Case("aliases", calls(both, (T(3), T(3)), X * 2), "clone() one", calls(both, (T(3), T(3)), (X[0], X[0].clone()))),
    Case("one", calls(both, X * 2, (T(3), T(3))), "in a warm-up too", calls(both, (X[0], X[0].clone()), (T(3), T(3)))),
    Case(
        "number",
        calls(times, (T(3), 2), (T(3), 3)),
        "ompile with dynamic=True",
        calls(times, (T(3), 2), (T(3), 3), dynamic=True),
    ),
    Case("number, first", calls(times, (T(3), 2), (T(3), 3)), "Pass k as a tensor", calls(times, *[(T(3), T(1))] * 2)),
    Case(
        "number as a tensor",
        calls(times, (T(3), 0.5), (T(3), 0.7), dynamic=False),
        "torch.tensor(k)",
        calls(times, (T(3), torch.tensor(0.5)), (T(3), torch.tensor(0.7)), dynamic=False),
    ),
    Case(
        "attribute",
        counted,
        ", where the code only computes with it; or ",
        counted_in_a_buffer,
    ),
    Case("attribute of a branch", cutting("condition"), "Compute both branches in each call", cutting("mask")),
    *(
        Case(
            f"attribute of a {need}",
            cutting(need),
            ", or set torch._dynamo.config.allow_unspec_int_on_nn_module = True: PyTorch makes constants",
            with_config(cutting(need), allow_unspec_int_on_nn_module=True),
            left=1,
        )
        for need in ("slice", "range")
    ),
    Case("attribute of a size", cutting("slice"), "Take the largest size in each call, and mask with", cutting("mask")),
    Case(
        "attribute of a size that a number is made of",
        cutting("entropy"),
        " where nothing computes a Python number of that size (math.log(x.shape[1])",
        cutting("entropy, masked"),
    ),
    Case("attribute of a loop", cutting("loop"), "Run the largest number of passes in each call", cutting("passes")),
    Case("learning rate", scheduled(0.1), "lr=torch.tensor(0.1)", scheduled(torch.tensor(0.1))),
    Case(
        "name",
        calls(chosen, (T(3), "a"), (T(3), "b")),
        " constant, or choose outside",
        calls(times, (T(3), torch.tensor(2.0)), (T(3), torch.tensor(3.0))),
    ),
    Case(
        "a table for each size",
        calls(Distances(0), *LENGTHS),
        "Make one tensor for the largest size of ",
        calls(Distances(16), *LENGTHS),
        left=1,
    ),
    Case("class made anew", gates(gate), " once, at the top of its module", gates(Gated)),
    Case("length", calls(summed, (T(3), [T(3)]), (T(3), [T(3)] * 2)), "one length", calls(summed, (T(3), [T(3)] * 2))),
    Case("type", calls(times, (T(3), T(3)), (T(3), 2)), "same type", calls(times, (T(3), T(3)), (T(3), T(3)))),
    Case("None", calls(optional, X, (T(3), T(3))), "same type", calls(optional, (T(3), T(3)), (T(3), T(3)))),
    Case("mode of a module", dropped(True, False), " in one mode where the other", dropped(True, True)),
    Case(
        "grad mode",
        in_modes(nullcontext, torch.no_grad),
        "Call it under the same ",
        in_modes(torch.no_grad, torch.no_grad),
    ),
    Case(
        "inference mode",
        calls(times, X, lambda: (torch.inference_mode()(T)(3),)),
        "in the same mode",
        calls(times, X, lambda: (torch.no_grad()(T)(3),)),
    ),
    Case(
        "bound",
        calls(bounded, *sizes(8, 3), dynamic=True),
        "The code asks about this size: decide outside the compiled function",
        calls(bounded, *sizes(8, 5), dynamic=True),
    ),
    Case("kind", of_kinds("sin", "cos"), " before the first call, and keep it, unless ", of_kinds("cos", "cos")),
    Case(
        "another attribute", with_options(at_first=False), "Keep what the guard asks for", with_options(at_first=True)
    ),
    Case(
        "cache",
        calls(attended, *((T(3), T(size, 3)) for size in (4, 5, 6))),
        "Generate with a cache of fixed size",
        calls(attended, *((T(3), T(6, 3)) for _ in range(3))),
    ),
    Case(
        "parameter",
        parameters(),
        "force_parameter_static_shapes = False",
        parameters(force_parameter_static_shapes=False),
        left=1,
    ),
    Case(
        "function",
        calls(called, (T(3), torch.sin), (T(3), torch.cos)),
        "Pass the same ",
        calls(called, (T(3), torch.cos)),
    ),
    Case(
        "device",
        calls(times, X, (torch.ones(3, device="meta"),)),
        "Call it with the same kind of tensor, on the same device",
        calls(times, X, X),
    ),
    Case("list that grows", kept(inside=True), " grow outside the compiled function", kept(inside=False)),
    Case("list that grows and is read", recent(rolled=False), "let a tensor of fixed size", recent(rolled=True)),
    Case("modules that grow", built(alone=False), " alone, the module that was added, and", built(alone=True)),
    Case(
        "modules by turns",
        joined(all_of_them=False),
        " have all its modules before the first call, and multiply",
        joined(all_of_them=True),
    ),
    Case(
        "keys of an argument",
        calls(voiced, *(sung(*names, masked=False) for names in (("bass",), ("bass", "alto"), ("alto", "tenor")))),
        "with the same keys in each call",
        calls(voiced, *(sung(*names, masked=True) for names in (("bass",), ("bass", "alto"), ("alto", "tenor")))),
    ),
    Case(
        "elements of a list",
        calls(weighted, *((T(3), [0.1 * n, 0.5, 0.2 * n]) for n in range(1, 5))),
        "Make one tensor of ",
        calls(weighted, *((T(3), torch.tensor([0.1 * n, 0.5, 0.2 * n])) for n in range(1, 5))),
    ),
    Case(
        "lists that a number indexes",
        sounded(tensors=False),
        "Make one tensor of envelope.bright and envelope.loud, each, once, outside the compiled function and the loop",
        sounded(tensors=True),
    ),
    Case("number read from a tensor", at_times(read=True), "Pass the tensor, t, in place", at_times(read=False)),
    *CHANGING,
    Case("backend", backends(backend(), backend()), "same backend", backends(one_backend, one_backend)),
]


@pytest.mark.parametrize("case", RECOMPILATIONS, ids=[case.name for case in RECOMPILATIONS])
def test_what_is_advised_against_recompilations(case: Case, tmp_path: Path) -> None:
    before = observe(tmp_path / "before.log", case.before)
    advice = " ".join(finding.advice for finding in before.findings("recompile"))
    assert case.words in advice
    torch._dynamo.reset()
    after = observe(tmp_path / "after.log", case.after)
    assert after.counts.recompiles == case.left < before.counts.recompiles
    assert after.findings("graph_break") == []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.linear(x).relu()


def test_compiling_the_block_that_repeats_takes_less_than_compiling_the_model(tmp_path: Path) -> None:
    blocks = torch.nn.Sequential(*(Block() for _ in range(4)))
    x = T(2, 3, requires_grad=True)
    whole = observe(tmp_path / "whole.log", lambda: torch.compile(blocks, backend="eager")(x))
    torch._dynamo.reset()

    def by_block() -> None:
        for block in blocks:
            block.compile(backend="eager")
        blocks(x)

    parts = observe(tmp_path / "parts.log", by_block)
    assert 4 * captured(parts) == captured(whole)
    assert parts.findings() == []


def captured(found: Observed) -> int:
    """Operations in all graphs."""
    return sum(event.ops for event in found.of(DynamoCompile))


def observe(path: Path, program: Callable[[], Any]) -> Observed:
    with observing(path) as found:
        program()
    return found[0]
