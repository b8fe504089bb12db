"""Programs of which nothing is to be said: what the documentation recommends, or says works."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch._dynamo
from torch import nn

from tests.sources.documented.truth import shows


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


@shows("get started: two pointwise operations")
def two_operations() -> None:
    def ripple(lake: Any) -> Any:
        return torch.tanh(torch.exp(lake))

    fast = compiled(ripple)
    for _ in range(3):
        fast(torch.rand(1000))


@shows("get started: a model of images")
def a_model_of_images() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    fast = compiled(model.eval())
    for _ in range(3):
        fast(torch.rand(2, 3, 12, 12))


@shows("get started: a pretrained model")
def a_model_of_text() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(40, 16), nn.Embedding(12, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)

        def forward(self, *, words: Any, mask: Any) -> Any:
            read = self.words(words) + self.places(torch.arange(words.size(1)))
            return self.layer(read, src_key_padding_mask=mask == 0)[:, 0]

    fast = compiled(Reader().eval())
    for _ in range(2):
        words = torch.randint(0, 40, (1, 9))
        fast(words=words, mask=torch.ones_like(words))


@shows("where to apply: inference")
def a_module_compiled_in_place() -> None:
    loom = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))
    loom.compile(backend="eager")
    for _ in range(4):
        loom(torch.rand(3, 6))


@shows("where to apply: a training step")
def a_training_step() -> None:
    vine = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(vine.parameters(), lr=0.1)

    def season(module: Any, sun: Any, sort: Any) -> None:
        optimizer.zero_grad(True)
        loss = nn.CrossEntropyLoss()(module(sun), sort)
        loss.backward()
        optimizer.step()

    fast = compiled(season)
    for _ in range(4):
        fast(vine, torch.rand(7, 5), torch.randint(0, 3, (7,)))


@shows("faq: training")
def a_forward_with_its_gradient() -> None:
    vine = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))
    fast = torch.compile(vine, backend="aot_eager")
    optimizer = torch.optim.SGD(vine.parameters(), lr=0.1)
    for _ in range(4):
        fast(torch.rand(7, 5)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@shows("faq: a transform of a compiled function")
def a_gradient_of_what_is_compiled() -> None:
    def bow(string: Any) -> Any:
        return (string.cos() * string).sum()

    fast = compiled(bow)
    for _ in range(2):
        torch.func.grad(fast)(torch.rand(5))


@shows("faq: torch.func.grad, compiled")
def a_compiled_gradient() -> None:
    def slope(hill: Any) -> Any:
        return torch.func.grad(lambda h: (h * h).sum())(hill)

    fast = compiled(slope)
    for _ in range(2):
        fast(torch.rand(2, 4))


@shows("faq: torch.vmap, compiled")
def a_compiled_vmap() -> None:
    def rows(field: Any) -> Any:
        return torch.vmap(lambda row: row.mean(0))(field)

    fast = compiled(rows)
    for _ in range(2):
        fast(torch.rand(2, 4, 3))


@shows("faq: allow_in_graph")
def a_transform_that_is_allowed() -> None:
    @torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
    def products(field: Any) -> Any:
        return torch.vmap(torch.prod)(field)

    fast = torch.compile(lambda field: products(field * 2), backend="aot_eager")
    for _ in range(2):
        fast(torch.rand(3, 4))


@shows("faq: numpy")
def numpy_alone() -> None:
    def products(left: Any, right: Any) -> Any:
        return np.max(left[:, :, None] * right[:, None, :], axis=(-2, -1))

    fast = compiled(products)
    for _ in range(2):
        fast(np.random.rand(8, 3), np.random.rand(8, 3))


@shows("faq: numpy, with a gradient")
def numpy_on_tensors() -> None:
    @torch.compiler.wrap_numpy
    def products(left: Any, right: Any) -> Any:
        return np.mean(np.sum(left[:, :, None] * right[:, None, :], axis=(-2, -1)))

    fast = torch.compile(products, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        fast(torch.rand(8, 3, requires_grad=True), torch.rand(8, 3)).backward()


@shows("faq: recompiling in production")
def no_new_graphs_after_a_warm_up() -> None:
    def priced(cart: Any) -> Any:
        return cart.sum() * 1.25

    fast = compiled(priced)
    fast(torch.rand(4))
    with torch.compiler.set_stance("eager_on_recompile"):
        for goods in (4, 6, 8):
            fast(torch.rand(goods))


@shows("fine-grained: run what was compiled")
def only_what_was_compiled_runs() -> None:
    def priced(cart: Any) -> Any:
        return cart.sum() * 1.5

    compiled(priced)(torch.rand(4))
    frozen = torch._dynamo.run(priced)
    for goods in (4, 6, 8):
        frozen(torch.rand(goods))


@shows("common graph breaks: a condition outside")
def a_condition_outside() -> None:
    tide = torch.rand(4)
    high = (tide.max() > 2).item()

    def moored(rope: Any) -> Any:
        return rope * tide if high else rope / tide

    fast = compiled(moored)
    for _ in range(3):
        fast(torch.rand(4))


@shows("common graph breaks: torch.cond")
def a_condition_in_the_graph() -> None:
    def sorted_out(mail: Any) -> Any:
        return torch.cond(mail.mean() > 0.5, lambda m: m * 2, lambda m: m - 2, (mail,))

    fast = compiled(sorted_out)
    for _ in range(2):
        fast(torch.rand(5))


@shows("common graph breaks: numbers of tensors in the graph")
def a_number_in_the_graph() -> None:
    def weighed(crate: Any) -> Any:
        return crate / crate.max().item()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        fast = compiled(weighed)
        for _ in range(3):
            fast(torch.rand(5))


@shows("common graph breaks: logging moved to the end")
def a_print_at_the_end() -> None:
    def fired(heat: Any) -> Any:
        heat = heat * 2
        print("fired")
        return heat.cos()

    with torch._dynamo.config.patch(reorderable_logging_functions={print}):
        fast = compiled(fired)
        for _ in range(2):
            fast(torch.rand(5))


@shows("fullgraph: an iterator made within")
def an_iterator_made_within() -> None:
    def joined(pairs: Any) -> Any:
        each = iter(pairs)
        return next(each) - next(each)

    compiled(joined, fullgraph=True)([torch.rand(3), torch.rand(3)])


def kneaded(dough: Any) -> Any:
    dough = dough.sin()
    torch._dynamo.graph_break()
    return dough.cos()


@shows("fullgraph: nonstrict_trace")
def what_cannot_be_traced_is_traced_otherwise() -> None:
    def baked(dough: Any) -> Any:
        return torch._dynamo.nonstrict_trace(kneaded)(dough * 2)

    fast = compiled(baked, fullgraph=True)
    for _ in range(2):
        fast(torch.rand(4))


@torch.library.custom_op("documented::pressed", mutates_args=())
def pressed(apple: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(apple.numpy() * 3)


@pressed.register_fake
def _(apple: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(apple)


@shows("fullgraph: an operator of one's own")
def an_operator_of_ones_own() -> None:
    def cider(apple: Any) -> Any:
        return pressed(apple + 1)

    fast = compiled(cider, fullgraph=True)
    for _ in range(2):
        fast(torch.rand(4))


@shows("fullgraph: what cannot be compiled stays outside")
def saved_between_two_graphs() -> None:
    import io

    first, second = compiled(lambda relic: relic**3 / 4), compiled(lambda relic: relic**2 / 8)
    relic = first(torch.rand(7))
    torch.save(relic, io.BytesIO())
    second(relic)


@shows("recompilation: dynamic=True")
def sizes_that_are_dynamic() -> None:
    fast = compiled(lambda dune: dune + 3, dynamic=True)
    for rows in (5, 7, 9):
        fast(torch.rand(rows, 4))


@shows("recompilation: numbers in tensors")
def a_float_in_a_tensor() -> None:
    fast = compiled(lambda ink, shade: ink * shade)
    for turn in range(6):
        fast(torch.rand(4), torch.tensor(0.25 + turn))


@shows("user annotations: mark_dynamic")
def a_size_that_is_marked() -> None:
    fast = compiled(lambda sheet: sheet * sheet.size(0))
    for rows in (5, 7, 9):
        sheet = torch.rand(rows, 2)
        torch._dynamo.mark_dynamic(sheet, 0, min=2, max=64)
        fast(sheet)


@shows("backed and unbacked: mark_unbacked")
def a_batch_of_one_that_is_marked() -> None:
    fast = compiled(lambda sheet: sheet * 2)
    for rows in (5, 1, 9):
        sheet = torch.rand(rows, 2)
        torch._dynamo.decorators.mark_unbacked(sheet, 0)
        fast(sheet)


@shows("core concepts: runtime asserts")
def a_bound_that_is_asserted() -> None:
    def seated(hall: Any) -> Any:
        torch._check(hall.size(0) < 100)
        return hall * 2 if hall.size(0) < 100 else hall

    fast = compiled(seated, dynamic=True)
    for rows in (5, 7, 9):
        fast(torch.rand(rows, 2))


@shows("core concepts: sizes learnt before anything is compiled")
def eager_first() -> None:
    fast = compiled(lambda sheet: sheet.sum(1))
    with torch.compiler.set_stance("eager_then_compile"):
        for rows in (5, 7, 9, 11):
            fast(torch.rand(rows, 2))


@shows("faq: DistributedDataParallel, the module compiled within")
def a_compiled_module_within_ddp() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        vine = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))
        wrapped = nn.parallel.DistributedDataParallel(torch.compile(vine, backend="aot_eager"))
        for _ in range(3):
            wrapped(torch.rand(7, 5)).square().mean().backward()
    finally:
        dist.destroy_process_group()


@shows("faq: DistributedDataParallel, compiled as a whole")
def ddp_compiled() -> None:
    class Vine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(5, 6), nn.Linear(6, 1)

        def forward(self, sun: Any) -> Any:
            return self.outer(self.inner(sun).relu())

    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        fast = torch.compile(nn.parallel.DistributedDataParallel(Vine()), backend="aot_eager")
        for _ in range(3):
            fast(torch.rand(7, 5)).square().mean().backward()
    finally:
        dist.destroy_process_group()
