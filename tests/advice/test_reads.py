"""Advice on reads is taken: values stay on the device, and few are read."""

from __future__ import annotations

import io
import logging
import queue
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal

import xlaprof.runtime as xr
from tests.advice.kept_values import (
    Step,
    acts_for_many,
    binned,
    by_weekday,
    capped,
    capped_at_once,
    classes,
    damped,
    halved,
    halved_by_a_mask,
    kept_for_later,
    learned,
    loop,
    shown_at_level,
    tallied,
    trained,
)
from tests.advice.taken import STEPS, Case, Program, take
from xlaprof import import_hook

log = logging.Logger("advice")  # with one handler: each formats, which reads
log.addHandler(logging.StreamHandler(io.StringIO()))


def distribution(**options: Any) -> Step:
    return lambda n, x: Normal(x, 1.0, **options).log_prob(x)


def clipped(**options: Any) -> Step:
    def step(n: int, x: Any) -> Any:
        weight = torch.nn.Parameter(x)
        weight.grad = x * 2
        norm = torch.nn.utils.clip_grad_norm_([weight], 1.0, **options)
        return norm.item() if n % 10 == 0 else norm

    return step


def every_tenth(read: Step) -> Step:
    return lambda n, x: read(n, x) if n % 10 == 9 else None


def total(n: int, loss: Any) -> float:
    return float(loss.sum())


def acted(n: int, x: Any) -> None:
    action = x.sum(-1).cpu()
    log.info("%d %d", n, len(action))


def printed(n: int, x: Any) -> None:
    print(x)


def logged(n: int, x: Any) -> None:
    log.warning("x %s", x.sum())


def logged_late(n: int, x: Any, before: list[Any] = []) -> None:  # noqa: B006
    before.append(x.sum())
    if len(before) > 2:
        log.warning("x %s", before.pop(0))


class Bar:
    def set_postfix(self, **values: float) -> None:
        self.values = values


bar = Bar()


def shown(n: int, x: Any) -> None:
    bar.set_postfix(x=x.sum().item())


def branches(n: int, x: Any) -> Any:
    if x.sum() > 3:
        return x * 2
    return x


def ends(n: int, x: Any) -> Any:
    done = x.sum(1) > 1e9
    if done.all():
        return None
    return x


def flagged() -> Step:
    flags: list[Any] = []

    def step(n: int, x: Any) -> Any:
        flags[:] = [(flags[0] if flags else False) | (x.sum(1) > 1e9)]
        if n % 10 == 0 and flags[0].all().item():
            return None
        return x

    return step


def asserted(n: int, x: Any) -> None:
    assert (x > -100).all()


def asserted_before(n: int, x: Any) -> Any:
    batch = torch.ones(4, 4) * n
    assert (batch > -100).all()
    return x + batch.to("xla")


def looped(n: int, x: Any) -> Any:
    while x.sum() > 60:
        x = x - 4
    return x


def weighed(n: int, x: Any) -> Any:
    return x * torch.tensor([1.0 if row > 5 else 0.0 for row in x.amax(-1)]).to("xla")


def chosen(n: int, x: Any) -> Any:
    return x * torch.where(x.amax(-1) > 5, 1.0, 0.0)


def looked_every_ten_turns(n: int, x: Any) -> Any:
    for turn in range(20):
        if turn % 10 == 0 and n % 10 == 0 and not x.sum() > 60:
            break
        x = torch.where(x.sum() > 60, x - 4, x)
    return x


def not_finite(n: int, x: Any) -> Any:
    if not torch.isfinite(x).all():
        raise FloatingPointError(n)
    return x


def replaced(n: int, x: Any) -> Any:
    return torch.where(torch.isfinite(x), x, 0.0)


def looked_up(n: int, x: Any) -> Any:
    timesteps = torch.arange(STEPS).to("xla")
    t = timesteps[n]
    index = (timesteps == t).nonzero().item()
    return x * index


def counted(n: int, x: Any) -> Any:
    return x * (n / 2 + 2)


def contains(n: int, x: Any) -> Any:
    return x * 2 if 3.0 in x else x


def contains_where(n: int, x: Any) -> Any:
    return torch.where((x == 3.0).any(), x * 2, x)


def library_call(n: int, x: Any) -> Any:
    return F.gaussian_nll_loss(x, x * 2, x * x)


def unchecked_loss(n: int, x: Any) -> Any:
    return 0.5 * ((x * x).log() + (x * 2 - x) ** 2 / (x * x)).mean()


def saved(n: int, x: Any) -> None:
    torch.save({"x": x}, io.BytesIO())


def saves_behind() -> None:
    copies: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def write() -> None:
        while (x := copies.get()) is not None:
            torch.save({"x": x}, io.BytesIO())

    thread = threading.Thread(target=write)
    thread.start()
    loop(lambda n, x: copies.put(x.clone()))()
    copies.put(None)
    thread.join()


def scaled_loss(scaler: Any) -> Step:
    weight = torch.ones(4, 4).to("xla").requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(n: int, x: Any) -> None:
        loss = (x @ weight).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def with_scaler() -> None:
    loop(scaled_loss(torch.amp.GradScaler("xla")))()


def in_bfloat16() -> None:
    weight = torch.ones(4, 4).to("xla").requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(n: int, x: Any) -> None:
        with torch.autocast("xla", dtype=torch.bfloat16):
            loss = (x @ weight).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step)()


def without_syncs() -> None:
    import_hook.serve()
    from torch_xla.amp import GradScaler, syncfree

    weight = torch.ones(4, 4).to("xla").requires_grad_()
    optimizer, scaler = syncfree.SGD([weight], lr=0.1), GradScaler()

    def step(n: int, x: Any) -> None:
        scaler.scale((x @ weight).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    loop(step)()


def evaluated(read_once: bool) -> Program:
    def program() -> None:
        weight = torch.ones(4, 4).to("xla")
        losses = []
        for _ in range(STEPS):
            loss = (torch.ones(4, 4).to("xla") @ weight).sum()
            if read_once:
                losses.append(loss.detach())
                xr.sync()
            else:
                losses.append(loss.item())
        print(torch.stack(losses).tolist() if read_once else losses)

    return program


SCALES = (0.5, 1.0, 2.0, 4.0)


def looked_up_in_a_list(n: int, x: Any) -> Any:
    return x * SCALES[x.sum(-1).argmax().item()]


def selected(n: int, x: Any, table: list[Any] = []) -> Any:  # noqa: B006
    if not table:
        table.append(torch.tensor(SCALES).to("xla"))
    return x * torch.index_select(table[0], 0, x.sum(-1).argmax().view(1))


def cut_to_length(n: int, x: Any) -> Any:
    return x[: (x[:, 0] > 0).sum().item()].mean()


def masked(n: int, x: Any) -> Any:
    size = (x[:, 0] > 0).sum()
    mask = torch.arange(4, device="xla") < size
    return torch.where(mask[:, None], x, 0).sum() / (size * 4)


def flag_of_two(n: int, x: Any) -> Any:
    warm = x.amax() > 2 and x.amin() > 0
    return x * warm


def flag_on_the_device(n: int, x: Any) -> Any:
    return x * ((x.amax() > 2) & (x.amin() > 0))


def filtered(n: int, x: Any) -> Any:
    large = [row for row in x if row.amax() > 5]
    return sum(large)


def named(n: int, x: Any) -> Any:
    size = x.norm().item()
    return x / size


def graphs_counted(n: int, x: Any) -> Any:
    index = torch.tensor([0, 0, 1, 2]).to("xla")
    size = int(index.max()) + 1
    return x.new_zeros(size, 4).index_add_(0, index, x).sum()


def graphs_given(n: int, x: Any) -> Any:
    index = torch.tensor([0, 0, 1, 2])
    size = int(index.max()) + 1  # on the host
    return x.new_zeros(size, 4).index_add_(0, index.to("xla"), x).sum()


def unread(n: int, x: Any) -> Any:
    return x / x.norm()


READS = [
    Case("a loss", "transfer", loop(total), " and read it ", loop(every_tenth(total)), also=("every 10 steps",)),
    Case(
        "the losses of an evaluation",
        "transfer",
        evaluated(False),
        "bring all of them to the host with one read",
        evaluated(True),
        also=("Keep each value on the device", "; end every turn"),
    ),
    Case("a number of graphs", "transfer", loop(graphs_counted), "Pass the number in", loop(graphs_given)),
    Case(
        "a value",
        "transfer",
        loop(lambda n, x: x.sum().item()),
        " and read it ",
        loop(every_tenth(lambda n, x: x.sum().item())),
    ),
    Case("a weight of each row", "transfer", loop(weighed), "Decide on the device", loop(chosen)),
    Case(
        "the turns of a search",
        "transfer",
        loop(halved),
        "the most that it can take",
        loop(halved_by_a_mask),
    ),
    Case(
        "the least of two tensors",
        "transfer",
        loop(capped),
        "Decide on the device",
        loop(capped_at_once),
        also=("torch.minimum for min()",),
    ),
    Case("elements", "transfer", binned(False), "Bring the whole tensor to the host once", binned(True)),
    Case("a number of classes", "transfer", loop(classes()), "Find what ", loop(classes(num_classes=4))),
    Case(
        "an optimizer",
        "transfer",
        trained(torch.optim.Adafactor),
        "Take an optimizer that reads nothing",
        trained(torch.optim.SGD),
    ),
    Case("many actions", "transfer", acts_for_many(False), "act with a copy of it on the CPU, ", acts_for_many(True)),
    Case("an action", "transfer", loop(acted), "Let one read serve many turns", loop(every_tenth(acted))),
    Case("a print", "transfer", loop(printed), "Show it ", loop(every_tenth(printed))),
    Case("a log", "transfer", loop(logged), "Show it ", loop(every_tenth(logged))),
    Case(
        "a log of earlier values",
        "transfer",
        loop(logged),
        "or show the value of some steps ago",
        loop(logged_late),
        counts=(),
    ),
    Case("a progress bar", "transfer", loop(shown), " and read it ", loop(every_tenth(shown))),
    Case(
        "a test for NaN",
        "transfer",
        loop(not_finite),
        "Replace what is not finite on the device",
        loop(every_tenth(not_finite)),
    ),
    Case(
        "what is not finite", "transfer", loop(not_finite), "Replace what is not finite on the device", loop(replaced)
    ),
    Case(
        "a clipped norm",
        "transfer",
        loop(clipped(error_if_nonfinite=True)),
        "Leave out error_if_nonfinite",
        loop(clipped()),
    ),
    Case(
        "anomaly detection",
        "transfer",
        loop(learned(watched=True)),
        "Leave torch.autograd.detect_anomaly() out",
        loop(learned(watched=False)),
    ),
    Case(
        "a distribution",
        "transfer",
        loop(distribution(validate_args=True)),
        "Pass validate_args=False",
        loop(distribution(validate_args=False)),
    ),
    Case("a scaler", "transfer", with_scaler, "Use autocast with bfloat16", in_bfloat16),
    Case(
        "an optimizer without syncs",
        "transfer",
        with_scaler,
        "or an optimizer of torch_xla.amp.syncfree",
        without_syncs,
    ),
    Case(
        "a branch",
        "transfer",
        loop(branches),
        "Decide on the device",
        loop(lambda n, x: torch.where(x.sum() > 3, x * 2, x)),
    ),
    Case("a branch that ends", "transfer", loop(ends), "a test that only stops or reports may look ", loop(flagged())),
    Case("a test with in", "transfer", loop(contains), "Decide on the device", loop(contains_where)),
    Case("an assertion", "transfer", loop(asserted), "Assert on the host before the upload", loop(asserted_before)),
    Case(
        "an assertion now and then",
        "transfer",
        loop(asserted),
        "Assert on the host before the upload, or look ",
        loop(every_tenth(asserted)),
    ),
    Case(
        "a loop until a value says so",
        "transfer",
        loop(looped),
        "Run a fixed number of turns, the most that it can take, with a mask",
        loop(lambda n, x: [x := torch.where(x.sum() > 60, x - 4, x) for _ in range(2)]),
    ),
    Case("a position", "transfer", loop(looked_up), "Count the position in Python", loop(counted)),
    Case(
        "an inverse",
        "transfer",
        loop(lambda n, x: torch.linalg.inv(x)),
        "Call the variant that leaves the check to you",
        loop(lambda n, x: torch.linalg.inv_ex(x)),
    ),
    Case("a metric", "transfer", tallied(False), "Add up on the device, and read the sum ", tallied(True)),
    Case("a damping", "transfer", damped(False), "Make what this line updates on the device", damped(True)),
    Case("tensors for later", "transfer", kept_for_later(False), "Keep the value on the device", kept_for_later(True)),
    Case("a level that is off", "transfer", shown_at_level(False), "or ask isEnabledFor()", shown_at_level(True)),
    Case("a metric by key", "transfer", by_weekday(False), "with index_add_, at positions", by_weekday(True)),
    Case("a row of a table", "transfer", loop(looked_up_in_a_list), "Index on the device", loop(selected)),
    Case("a length", "transfer", loop(cut_to_length), "Keep one size, the largest, and mask", loop(masked)),
    Case("a flag", "transfer", loop(flag_of_two), "Decide on the device", loop(flag_on_the_device)),
    Case("boxes that are large enough", "transfer", loop(filtered), "Decide on the device", loop(chosen)),
    Case("a value by its name", "transfer", loop(named), "Compute with the tensor itself, on the device", loop(unread)),
    Case(
        "a library's function",
        "transfer",
        loop(library_call),
        "pass that number, or leave ",
        loop(unchecked_loss),
    ),
    Case(
        "a tensor for the host",
        "transfer",
        loop(lambda n, x: (x * 2).cpu()),
        "hand the tensor over once",
        loop(lambda n, x: (x * 2).cpu() if n == STEPS - 1 else None),
    ),
    Case("a checkpoint", "transfer", loop(saved), "Save less often", loop(every_tenth(saved))),
    Case(
        "a checkpoint in a thread",
        "transfer",
        loop(saved),
        "hand a copy made on the device to a background thread",
        saves_behind,
        counts=(),
    ),
]
CASES = READS


@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_a_value_is_read_no_more(case: Case, tmp_path: Path) -> None:
    take(case, tmp_path)
