"""Graphs that break, or that are not made."""

from __future__ import annotations

import contextlib
import io
import logging
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo
from torch import nn

from tests.sources.documented.truth import Named, shows

_LOG = logging.getLogger("kiln")


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


@shows(
    "faq: identifying the cause of a graph break",
    Named("graph_break", 'print("levels', "print"),
    Named("graph_break", "if drift.mean()", "value of a tensor"),
)
def a_message_and_a_condition() -> None:
    def balanced(level: Any, drift: Any) -> Any:
        share = level / (level.abs() + 2)
        print("levels read")
        if drift.mean() > 0:
            drift = -drift
        return share + drift

    fast = compiled(balanced)
    for lift in (1.0, -1.0, 2.0):
        fast(torch.rand(6), torch.rand(6) * lift)


@shows("faq: an error at the first graph break", Named("graph_break", 'print("glaze', "print"))
def whole_or_not_at_all() -> None:
    def glazed(coat: Any) -> Any:
        coat = coat.sqrt()
        print("glaze", len(coat))
        return coat * 3

    try:
        compiled(glazed, fullgraph=True)(torch.rand(5))
    except torch._dynamo.exc.Unsupported:
        glazed(torch.rand(5))


@shows("troubleshooting: graph break", Named("graph_break", "with path.open()", "open"))
def a_file_is_read() -> None:
    path = Path(__file__)

    def stamped(page: Any) -> Any:
        page = page + 4
        with path.open() as text:
            return page * len(text.readline())

    compiled(stamped)(torch.ones(2, 5))


@shows(
    "common graph breaks: data-dependent operations",
    Named("graph_break", "if weight > 2", "value of a tensor"),
    Named("graph_break", "return crate / weight.item()", "item"),
)
def a_condition_and_a_number() -> None:
    def packed(crate: Any) -> Any:
        weight = crate.sum()
        if weight > 2:
            return crate / weight.item()
        return crate * weight.item()

    compiled(packed)(torch.ones(4, 2))


@shows(
    "common graph breaks: control flow on constants",
    Named("graph_break", "if tide.max()", "value of a tensor"),
)
def a_condition_on_a_tensor_that_never_changes() -> None:
    tide = torch.rand(4)

    def moored(rope: Any) -> Any:
        if tide.max() > 2:
            return rope * tide
        return rope / tide

    fast = compiled(moored)
    for _ in range(3):
        fast(torch.rand(4))


@shows(
    "common graph breaks: incorrect code",
    Named("graph_break", "torch.floor(sand, sand)", "TypeError|argument|error"),
)
def a_call_that_is_wrong_in_any_case() -> None:
    def sieved(sand: Any) -> Any:
        return torch.floor(sand, sand)  # type: ignore[call-overload]

    with contextlib.suppress(TypeError):
        compiled(sieved)(torch.rand(3))


@shows("common graph breaks: printing and logging", Named("graph_break", '_LOG.warning("fired', "warning|logg"))
def a_log_within() -> None:
    def fired(heat: Any) -> Any:
        heat = heat.exp()
        _LOG.warning("fired")
        return heat.log1p()

    fast = compiled(fired)
    for _ in range(3):
        fast(torch.rand(3))


@shows("core concepts: graph breaks", Named("graph_break", "torch.save(", "save"))
def a_tensor_is_saved() -> None:
    shelf = io.BytesIO()

    def kept(relic: Any) -> Any:
        relic = relic**3 / 4
        torch.save(relic, shelf)
        return relic**2 / 8

    compiled(kept)(torch.rand(7))


@shows("disabling: a function and all that it calls", Named("graph_break", "ore = crushed(ore)", "crushed"))
def a_function_that_is_not_to_be_compiled() -> None:
    def rinsed(ore: Any) -> Any:
        torch._dynamo.graph_break()
        return ore * 2

    @torch.compiler.disable
    def crushed(ore: Any) -> Any:
        torch._dynamo.graph_break()
        return rinsed(ore - 1)

    def milled(ore: Any) -> Any:
        ore = crushed(ore)
        return ore + 6

    fast = compiled(milled)
    for _ in range(2):
        fast(torch.rand(4))


@shows(
    "disabling: a function, but not what it calls",
    Named("graph_break", "seed = sown(seed)", "sown"),
    Named("graph_break", "torch._dynamo.graph_break()  # in what it calls", "graph_break"),
)
def a_function_that_is_not_to_be_compiled_alone() -> None:
    def raked(seed: Any) -> Any:
        seed = seed.cos()
        torch._dynamo.graph_break()  # in what it calls
        return seed * 5

    @torch.compiler.disable(recursive=False)
    def sown(seed: Any) -> Any:
        return raked(seed + 9)

    def grown(seed: Any) -> Any:
        seed = seed.sin()
        seed = sown(seed)
        return seed.tanh()

    compiled(grown)(torch.rand(4))


@shows("fine-grained: an operator that is not allowed in a graph", Named("graph_break", "foam = torch.erf(", "erf"))
def an_operator_that_is_kept_out() -> None:
    def whisked(foam: Any) -> Any:
        foam = foam * 2
        foam = torch.erf(foam)
        return foam - 1

    torch._dynamo.disallow_in_graph(torch.erf)
    try:
        compiled(whisked)(torch.rand(4))
    finally:
        torch._dynamo.allow_in_graph(torch.erf)


@shows(
    "skipped functions: a frame that is skipped",
    Named("graph_break", "torch._dynamo.skip_frame()", r"Nothing of \S*carved is compiled"),
)
def a_function_given_up() -> None:
    def sketched(wood: Any) -> Any:
        return wood + 3

    def polished(wood: Any) -> Any:
        return wood * 7

    def carved(wood: Any) -> Any:
        wood = sketched(wood)
        torch._dynamo.skip_frame()
        return polished(wood)

    compiled(carved)(torch.rand(4))


@shows(
    "skipped functions: a break in a loop",
    Named("graph_break", "torch._dynamo.graph_break()", r"Nothing of \S*wound is compiled"),
)
def a_break_in_a_loop() -> None:
    def wound(yarn: Any) -> Any:
        for turn in range(4):
            yarn = yarn - 1
            if turn == 2:
                torch._dynamo.graph_break()
        return yarn

    compiled(wound)(torch.rand(4))


@shows(
    "skipped functions: a break in a context manager",
    Named("graph_break", "torch._dynamo.graph_break()", r"Nothing of \S*steeped is compiled"),
)
def a_break_in_a_with_of_ones_own() -> None:
    class Lid:
        def __enter__(self) -> None: ...

        def __exit__(self, *raised: object) -> None: ...

    def steeped(tea: Any) -> Any:
        with Lid():
            tea = tea + 2
            torch._dynamo.graph_break()
            return tea * 2

    compiled(steeped)(torch.rand(4))


@shows(
    "skipped functions: a break in a context manager of PyTorch",
    Named("graph_break", "torch._dynamo.graph_break()", "cut in two"),
)
def a_break_in_no_grad() -> None:
    def poured(milk: Any) -> Any:
        with contextlib.nullcontext(), torch.no_grad():
            milk = milk + 2
            torch._dynamo.graph_break()
            return milk * 2

    compiled(poured)(torch.rand(4))


@shows(
    "skipped functions: a break in a try block",
    Named("graph_break", "torch._dynamo.graph_break()", r"Nothing of \S*caught is compiled"),
)
def a_break_in_a_try() -> None:
    def caught(fish: Any) -> Any:
        try:
            fish = fish + 2
            torch._dynamo.graph_break()
            return fish * 2
        except ValueError:
            return fish

    compiled(caught)(torch.rand(4))


@shows("nested graph breaks", Named("graph_break", "torch._dynamo.graph_break()", "innermost|graph"))
def a_break_three_calls_deep() -> None:
    def stitched(hem: Any) -> Any:
        hem = hem + 1
        torch._dynamo.graph_break()
        return hem + 2

    def lined(hem: Any) -> Any:
        return stitched(hem * 4) * 8

    def sewn(hem: Any) -> Any:
        return lined(hem - 16) - 32

    fast = compiled(sewn)
    for _ in range(2):
        fast(torch.rand(4))


@shows("faq: numpy, a graph break within", Named("graph_break", 'print("outer', "print"))
def numpy_with_a_print() -> None:
    def crossed(rows: Any, columns: Any) -> Any:
        table = rows[:, :, None] - columns[:, None, :]
        print("outer difference")
        return np.sum(table, axis=(-2, -1))

    compiled(crossed)(np.random.rand(6, 3), np.random.rand(6, 3))


@shows("faq: numpy, features that are not traced", Named("graph_break", "np.add.reduce(", "reduce"))
def numpy_that_is_not_traced() -> None:
    def folded(linen: Any) -> Any:
        linen = linen * 2
        total = np.add.reduce(linen, axis=0)
        return total + 1

    compiled(folded)(np.random.rand(6, 3))


@shows(
    "faq: numpy, polynomials",
    Named("graph_break", "np.poly1d(", "poly1d|polynomial|numpy"),
    also=(Named("graph_break", "return np.cos(rail) + curve(0.5)", "poly1d"),),  # calling it is another break
)
def numpy_polynomials() -> None:
    def bent(rail: Any) -> Any:
        rail = np.sin(rail)
        curve = np.poly1d([1.0, -2.0, 3.0])
        return np.cos(rail) + curve(0.5)

    compiled(bent)(np.random.rand(6))


@shows("faq: numpy, selection by a mask", Named("graph_break", "dry = hay[hay >", "mask|values|nonzero|size"))
def numpy_selected_by_a_mask() -> None:
    def baled(hay: Any) -> Any:
        hay = hay - 0.25
        dry = hay[hay > 0.5]
        return dry * 2

    compiled(baled)(np.random.rand(9))


@shows("faq: numpy on tensors, a graph break within", Named("graph_break", 'print("woven', "print"))
def numpy_on_tensors_with_a_print() -> None:
    @torch.compiler.wrap_numpy
    def woven(warp: Any, weft: Any) -> Any:
        cloth = warp[:, :, None] + weft[:, None, :]
        print("woven")
        return np.sum(cloth, axis=(-2, -1))

    compiled(woven)(torch.rand(6, 3), torch.rand(6, 3))


@shows(
    "faq: allow_in_graph, called within",
    Named("graph_break", "return torch._dynamo.allow_in_graph(", "allow_in_graph"),
)
def a_transform_allowed_within() -> None:
    def rows(field: Any) -> Any:
        return torch._dynamo.allow_in_graph(torch.vmap(torch.prod))(field)

    torch.compile(rows, backend="aot_eager")(torch.rand(3, 4))


@shows("fullgraph: an iterator as an argument", Named("graph_break", "first = next(pairs)", "next|iterator"))
def an_iterator_is_passed() -> None:
    def joined(pairs: Any) -> Any:
        first = next(pairs)
        return first - next(pairs)

    compiled(joined)(iter([torch.rand(3), torch.rand(3)]))


@shows("fullgraph: a function of a C extension", Named("graph_break", "zlib.crc32(", "crc32|zlib"))
def a_function_in_c() -> None:
    def sealed(wax: Any, mark: bytes) -> Any:
        wax = wax + 1
        return wax * zlib.crc32(mark)

    compiled(sealed)(torch.rand(3), b"mark")


@shows(
    "toggling errors: allowed in one function",
    Named("graph_break", "torch._dynamo.graph_break()", "graph_break"),
)
def a_break_that_is_allowed() -> None:
    @torch._dynamo.error_on_graph_break(False)  # type: ignore[untyped-decorator]
    def knotted(rope: Any) -> Any:
        rope = rope + 4
        torch._dynamo.graph_break()
        return rope + 5

    def rigged(rope: Any) -> Any:
        return knotted(rope * 2)

    torch._dynamo.error_on_graph_break(True)(compiled(rigged))(torch.rand(3))


@shows(
    "toggling errors: forbidden in one function",
    Named("graph_break", "torch._dynamo.graph_break()  # an error", "graph_break"),
)
def a_break_that_is_forbidden() -> None:
    @torch._dynamo.error_on_graph_break(True)  # type: ignore[untyped-decorator]
    def braided(straw: Any) -> Any:
        straw = straw + 4
        torch._dynamo.graph_break()  # an error
        return straw + 5

    def thatched(straw: Any) -> Any:
        return braided(straw * 2)

    with contextlib.suppress(torch._dynamo.exc.Unsupported):
        compiled(thatched)(torch.rand(3))


@shows(
    "guard errors: a module chosen by a value",
    Named("graph_break", "self.presses[choice.item()]", "item"),
)
def a_module_chosen_by_a_value() -> None:
    class Winery(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.presses = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

        def forward(self, grapes: Any, choice: Any) -> Any:
            grapes = grapes * 2
            return self.presses[choice.item()](grapes)

    fast = compiled(Winery())
    for choice in (0, 1, 0, 1):
        fast(torch.rand(2, 3), torch.tensor(choice))


@shows(
    "where to apply: a wrapper for ranks",
    Named("graph_break", "fast(torch.rand(7, 5))", "captured 0 operations"),
)
def a_sequential_in_ddp() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        vine = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))
        fast = torch.compile(nn.parallel.DistributedDataParallel(vine), backend="aot_eager")
        for _ in range(2):
            fast(torch.rand(7, 5)).square().mean().backward()
    finally:
        dist.destroy_process_group()


@shows(
    "disabling: errors that are suppressed",
    Named("graph_break", "fast(torch.rand(4))", "no such kernel"),
)
def a_compiler_that_fails_in_silence() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no such kernel")

    def ground(grain: Any) -> Any:
        return grain * 2 + 1

    with torch._dynamo.config.patch(suppress_errors=True):
        fast = torch.compile(ground, backend=backend)
        for _ in range(3):
            fast(torch.rand(4))
