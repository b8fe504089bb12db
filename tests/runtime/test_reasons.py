"""Why graphs of small trainings are new: the number's name, the branch's condition, the list that holds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import xlaprof.runtime as xr
from xlaprof import events
from xlaprof.analysis.diagnosis import cause
from xlaprof.runtime import parity
from xlaprof.runtime.instruments import retainers
from xlaprof.runtime.recompile import graph_diff

from .recorded_programs import RecordedProgram, record

history: list[torch.Tensor] = []


@pytest.fixture(autouse=True)
def with_time_to_look(monkeypatch: pytest.MonkeyPatch) -> None:  # half a second in all: others may have used it up
    monkeypatch.setattr(retainers, "_spent_ns", 0)
    gc.unfreeze()  # what is frozen is not found


@pytest.fixture(autouse=True)
def with_no_trace_of_other_tests() -> Iterator[None]:
    xr.forget_graphs()  # a new graph is compared with those that ran before: with this test's alone
    yield
    parity.set_strict(False)


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], object]], RecordedProgram]:
    return lambda story: record(tmp_path / "run.log", story)


def batch(rows: int, width: int = 5) -> torch.Tensor:
    return torch.ones(rows, width)


def test_gradients_that_are_added_to_and_an_optimizer_that_runs_now_and_then(recorded: Callable) -> None:
    model = nn.Linear(5, 3).to("xla")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def story() -> None:
        for step in range(5):
            loss = model(batch(4).to("xla")).sum()
            loss.backward()
            if step % 3 == 2:
                opt.step()
                opt.zero_grad()
            xr.sync()

    run = recorded(story)
    grad, update = run.changes[-2:]
    assert (grad.what, grad.role, run.code(grad.stack)) == ("operation", "grad", "loss.backward()")
    assert (update.what, update.role, run.code(update.stack)) == ("operation", "optimizer", "opt.step()")
    assert run.code(update.condition) == "if step % 3 == 2:"
    # both parameters' updates; a gradient's write through a view, which nobody needs now
    assert (update.added, update.removed) == (2, 1)
    compiled = {cause(c): c for c in run.of(events.Compile)}
    assert update.against == compiled[grad].program  # the closest


def test_a_learning_rate_has_its_name_and_its_sign(recorded: Callable) -> None:
    parity.set_strict(True)
    model = nn.Linear(7, 3).to("xla")
    opt = torch.optim.SGD(model.parameters(), lr=0.0)

    def story() -> None:
        for lr in (0.0, 0.25, 0.5, 1.0):
            opt.param_groups[0]["lr"] = lr
            model(batch(4, 7).to("xla")).sum().backward()
            opt.step()
            opt.zero_grad()
            xr.sync()

    first, second = recorded(story).changes[-2:]
    assert (first.what, first.name, first.old, first.new) == ("scalar", "lr", "0.0", "0.25")
    assert (second.what, second.name, second.old, second.new) == ("scalar", "lr", "0.5", "1.0")


def test_a_learning_rate_is_reported_where_only_the_weight_decay_shows_it(recorded: Callable) -> None:
    parity.set_strict(True)
    model = nn.Linear(5, 3).to("xla")
    opt = torch.optim.AdamW(model.parameters(), lr=0.5, weight_decay=0.01)

    def story() -> None:
        for lr in (0.002, 0.001, 0.001, 0.0):
            opt.param_groups[0]["lr"] = lr
            opt.zero_grad()
            model(batch(4).to("xla")).sum().backward()
            opt.step()
            xr.sync()

    change = recorded(story).changes[-1]
    assert (change.what, change.name, change.old, change.new) == ("scalar", "lr", "0.001", "0.0")


def test_the_list_that_holds_a_tensor_is_named_with_the_line_that_fills_it(recorded: Callable) -> None:
    x = torch.ones(4, 27).to("xla")

    def story() -> None:
        for i in range(3):
            hidden = x.sinh()
            y = hidden.cosh().sum()
            if i == 2:
                history.append(hidden)
            del hidden
            xr.sync()
            del y

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.name, change.role) == ("outputs", "history", "list")
    assert run.code(change.stack) == "history.append(hidden)"
    assert run.code(change.made) == "hidden = x.sinh()"
    history.clear()


def test_looking_for_a_holder_keeps_nothing_alive(recorded: Callable) -> None:
    x = torch.ones(4, 29).to("xla")
    counts = []

    def story() -> None:
        kept = []
        for i in range(6):
            hidden = x.sinh()
            y = hidden.cosh().sum()
            if i == 2:
                kept.append(hidden)
            del hidden
            xr.sync()
            kept.clear()
            del y
            counts.append(len([c for c in xr.metrics.counter_names() if c == "UncachedCompile"]))

    run = recorded(story)
    assert [change.what for change in run.changes[-1:]] == ["outputs"]
    outputs = [c.outputs for c in run.of(events.Compile)]
    assert outputs == [1, 2]  # and the fourth step runs the first graph again


def test_dropout_that_is_switched_off_is_the_mode(recorded: Callable) -> None:
    model = nn.Sequential(nn.Linear(9, 4), nn.Dropout(0.5), nn.Tanh()).to("xla")

    def story() -> None:
        for training in (True, False):
            model.train(training)
            out = model(batch(4, 9).to("xla"))
            xr.sync()
            del out

    change = recorded(story).changes[-1]
    assert (change.what, change.role) == ("operation", "mode")
    assert (change.old, change.new) == ("dropout (training)", "no dropout (eval, or p = 0)")


def test_autocast_that_is_switched_on_is_reported_as_that(recorded: Callable) -> None:
    model = nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 2)).to("xla")

    def story() -> None:
        for step in range(4):
            with torch.autocast("xla", dtype=torch.bfloat16, enabled=step >= 2):
                out = model(batch(4, 10).to("xla"))
            xr.sync()
            del out

    change = recorded(story).changes[-1]
    assert (change.what, change.role) == ("operation", "autocast")
    assert change.added > change.removed


def test_autocast_that_is_switched_off_is_reported_as_that(recorded: Callable) -> None:
    model = nn.Sequential(nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 2)).to("xla")

    def story() -> None:
        for step in range(4):
            with torch.autocast("xla", dtype=torch.bfloat16, enabled=step < 2):
                out = model(batch(4, 12).to("xla"))
            xr.sync()
            del out

    change = recorded(story).changes[-1]
    assert (change.what, change.role) == ("operation", "autocast")
    assert change.added < change.removed


def test_another_rank_is_reported_by_the_line_that_brought_the_tensor(recorded: Callable) -> None:
    layer = nn.Conv2d(1, 2, 3).to("xla")

    def story() -> None:
        for image in (torch.ones(1, 1, 6, 6), torch.ones(1, 6, 6)):
            image = image.to("xla")
            out = layer(image)
            xr.sync()
            del out

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.old, change.new) == ("shape", "f32[1,1,6,6]", "f32[1,6,6]")
    assert (run.code(change.made), change.moved) == ('image = image.to("xla")', True)


def test_a_barrier_in_the_middle_of_the_step_is_what_is_reported(recorded: Callable) -> None:
    weight = torch.ones(31, 31).to("xla")

    def story() -> None:
        for step in range(5):
            x = batch(4, 31).to("xla")
            h = (x @ weight).tanh()
            if step == 3:
                xr.sync()
            y = (h @ weight).sum()
            xr.sync()
            del h, y

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.role) == ("operation", "barrier")
    assert run.code(change.stack) == "xr.sync()"
    assert run.code(change.condition) == "if step == 3:"


def test_an_optimizer_that_makes_state_in_the_middle(recorded: Callable) -> None:
    parity.set_strict(True)
    one, two = nn.Linear(11, 11).to("xla"), nn.Linear(11, 11).to("xla")
    opt = torch.optim.Adam(one.parameters(), lr=0.01)

    def story() -> None:
        for step in range(6):
            if step == 3:
                opt.add_param_group({"params": list(two.parameters())})
            F.mse_loss(two(one(batch(4, 11).to("xla"))), torch.zeros(4, 11).to("xla")).backward()
            opt.step()
            kept = [p.grad for p in two.parameters()]  # computed in every step, also before they are used
            for p in (*one.parameters(), *two.parameters()):
                p.grad = None
            xr.sync()
            del kept

    run = recorded(story)
    assert [change.role for change in run.changes[-2:]] == ["state", "state"]
    assert {run.code(change.stack) for change in run.changes[-2:]} == {"opt.step()"}


def test_a_comparison_that_fails_leaves_the_program_alone(recorded: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(graph_diff, "_graph_diff", broken)
    x = torch.ones(3, 37).to("xla")
    with pytest.warns(RuntimeWarning, match="cannot say why a graph is new: ZeroDivisionError"):
        run = recorded(lambda: (x.sinh().sum().item(), xr.sync()))
    assert run.changes == []
    assert len(run.of(events.Compile)) == 1


def test_a_read_says_how_much_of_its_graph_the_barrier_runs_again(recorded: Callable) -> None:
    x = torch.ones(4, 39).to("xla")

    def story() -> None:
        y = x.sinh()
        total = y.cosh().sum()
        total.item()  # sinh is needed for y, too
        xr.sync()
        (y > 1).any().item()  # nothing else is pending

    first, _, last = recorded(story).of(events.Compile)
    assert (first.trigger, first.again, first.ops) == ("read", 1, 3)
    assert (last.trigger, last.again) == ("read", 0)


def test_a_line_that_reads_tensors_in_turns_is_compared_with_its_own(recorded: Callable) -> None:
    x, y = torch.ones(9, 13).to("xla"), torch.ones(9, 2).to("xla")

    def story() -> None:
        for i in (1, 5, 7):
            xr.sync()
            [t[i].cpu() for t in (x, y)]

    later = recorded(story).changes[-4:]
    assert [(change.what, change.old, change.new) for change in later] == [
        ("argument", "1", "5"), ("argument", "1", "5"), ("argument", "5", "7"), ("argument", "5", "7"),
    ]  # fmt: skip


def test_a_condition_in_a_loop_is_what_decides_about_its_passes(recorded: Callable) -> None:
    layers = [nn.Linear(17, 17).to("xla") for _ in range(4)]

    def story() -> None:
        for skipped in ((), (1,), (1, 2)):
            x = batch(4, 17).to("xla")
            for n, layer in enumerate(layers):
                if n in skipped:
                    continue
                x = layer(x).tanh()
            xr.sync()
            del x

    run = recorded(story)
    fewer, still_fewer = run.changes[-2:]
    assert (fewer.role, fewer.old, fewer.new) == ("loop", "4 passes", "3 passes")
    assert (still_fewer.old, still_fewer.new) == ("3 passes", "2 passes")
    assert run.code(fewer.stack) == run.code(fewer.condition) == "if n in skipped:"
    assert run.code(fewer.made) == "for n, layer in enumerate(layers):"


def test_other_passes_of_a_loop_are_not_reported_as_another_index(recorded: Callable) -> None:
    def story() -> None:
        for hard in ((0, 2), (1, 2), (1, 3)):
            losses = batch(5, 19).to("xla").sum(1)
            chosen = []
            for i in range(5):
                if i in hard:
                    chosen.append(losses[i])
            total = torch.stack(chosen).mean()
            xr.sync()
            del losses, chosen, total

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.role, change.old, change.new) == ("operation", "loop", "2 passes", "other passes")
    assert run.code(change.stack) == "if i in hard:"


def test_an_argument_that_all_passes_have_in_common_is_one(recorded: Callable) -> None:
    def story() -> None:
        for k in (4, 3):
            x = batch(5, 23).to("xla")
            parts = []
            for part in (0, 1):
                if part < 2:
                    parts.append(x.topk(k).values.sum())
            total = parts[0] + parts[1]
            xr.sync()
            del x, parts, total

    change = recorded(story).changes[-1]
    assert (change.what, change.old, change.new) == ("argument", "4", "3")


def test_tensors_that_have_become_the_same_are_reported_as_that(recorded: Callable) -> None:
    one, two = nn.Linear(29, 29, bias=False).to("xla"), nn.Linear(29, 29, bias=False).to("xla")

    def story() -> None:
        for shared in (False, True):
            if shared:
                two.weight = one.weight
            out = two(one(batch(4, 29).to("xla"))).sum()
            xr.sync()
            del out

    change = recorded(story).changes[-1]
    assert (change.what, change.role) == ("aliasing", "")


def test_another_models_whole_step_is_a_path_and_no_state_of_an_optimizer(recorded: Callable) -> None:
    critic, actor = nn.Linear(7, 7).to("xla"), nn.Linear(7, 7).to("xla")
    ours = torch.optim.SGD(critic.parameters(), lr=0.1)
    theirs = torch.optim.RMSprop(actor.parameters(), lr=0.1)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(batch(4, 7).to("xla")).square().mean().backward()
        optimizer.step()

    def story() -> None:
        for n in range(5):
            step(critic, ours)
            if n == 3:
                step(actor, theirs)
            xr.sync()

    run = recorded(story)
    change = next(change for change in run.changes if change.added > 5)
    assert (change.what, change.role, run.code(change.condition)) == ("operation", "", "if n == 3:")


def test_a_view_that_is_kept_over_a_barrier_is_reported_where_it_was_made(recorded: Callable) -> None:
    """Its slice is recorded again by whoever uses it in the next graph: that line has nothing to do with it."""
    weight = torch.ones(9, 9).to("xla")
    xr.sync()

    def story() -> None:
        last = torch.ones(1, 9).to("xla")
        for accepted in (0, 1, 0, 2, 1):
            rows = (last @ weight).expand(4, 9) * 2
            last = rows[accepted : accepted + 1]
            xr.sync()

    run = recorded(story)
    change = next(change for change in run.changes if (change.what, change.old, change.new) == ("argument", "0", "1"))
    assert run.code(change.stack) == "last = rows[accepted : accepted + 1]"


def test_an_argument_that_is_left_out_is_its_default(recorded: Callable) -> None:
    def story() -> None:
        x, y = torch.ones(3, 31).to("xla"), torch.ones(3, 31).to("xla")
        xr.sync()
        for weight in (1.0, 0.75, 0.5):
            out = torch.add(x, y, alpha=weight).sum()
            xr.sync()
            del out

    (change,) = [change for change in recorded(story).changes if change.what in ("scalar", "argument")]
    assert (change.what, float(change.old), float(change.new)) == ("scalar", 1.0, 0.75)


def test_a_number_that_is_the_default_once_is_a_number_all_the_same(recorded: Callable) -> None:
    """PyTorch leaves out ``p`` where it is 0.5; a dropout that is annealed from there needs no other graph."""

    def story() -> None:
        x = torch.ones(5, 31).to("xla")
        xr.sync()
        for p in (0.5, 0.4, 0.5, 0.3):
            out = F.leaky_relu(F.dropout(x, p), 0.01 if p == 0.5 else p).sum()
            xr.sync()
            del out

    run = recorded(story)
    compiled = [c for c in run.of(events.Compile) if c.ops > 2]
    assert len(compiled) == 1


def test_the_value_that_a_comparison_picked_is_reported_at_the_comparison(recorded: Callable) -> None:
    """All groups are recorded in every step, and Python's max() decides whose loss is used: it reads to do so."""
    weight = torch.ones(37, 3).to("xla").requires_grad_()
    xr.sync()

    def story() -> None:
        for worst in (0, 2, 1):
            x = torch.zeros(6, 37)
            x[worst * 2] = 4
            rows = (x.to("xla") @ weight).square().sum(1)
            loss = max(rows[i : i + 2].sum() for i in range(0, 6, 2))
            loss.backward()
            weight.grad = None
            xr.sync()
            del loss, rows

    run = recorded(story)
    last = [cause(c) for c in run.of(events.Compile) if c.trigger != "read"][-1]
    assert (last.what, last.new) == ("operation", "aten::slice (start 2)")
    assert run.code(last.stack).startswith("loss = max(")


def test_what_a_read_runs_and_the_barrier_ran_before_is_no_barrier_too_many(recorded: Callable) -> None:
    """An optimizer with a line search reads now this and now that; in the step before, the barrier ran all of it."""
    weight = torch.ones(41, 3).to("xla")
    xr.sync()

    def story() -> None:
        for step in range(4):
            y = batch(4, 41).to("xla") @ weight
            z = (y * 3).exp()
            (z if step == 2 else y).sum().item()
            z.sum()
            xr.sync()

    assert all(change.role != "barrier" for change in recorded(story).changes)


def test_elements_that_a_loop_goes_over_have_their_turns_and_are_not_picked_by_what_is_read(recorded: Callable) -> None:
    """A sampler looks up the position of each time step, and reads it; the steps are the elements of a tensor."""
    steps = torch.arange(4.0).to("xla")
    xr.sync()

    def story() -> None:
        for t in steps:
            ((steps - t) * 53).sum().item()

    changes = [change for change in recorded(story).changes if change.what in ("argument", "operation")]
    assert {change.what for change in changes if "select" in f"{change.old} {change.subject}"} == {"argument"}


def test_a_number_that_a_local_variable_holds_has_its_name_and_no_tensor_lives_longer_for_it(
    recorded: Callable,
) -> None:
    x = torch.ones(3, 61).to("xla")
    xr.sync()

    def story() -> None:
        for beta in (0.0, 0.25, 0.5, 0.75):
            y = x.sinh()
            out = y.cosh() + beta * y
            del y
            xr.sync()
            del out

    (change,) = recorded(story).changes
    assert (change.name, change.old, change.new) == ("beta", "0.0", "0.25")
