"""Results whose shape depends on values: right, on the device, for one read of one number, told as what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events, log
from xlaprof.analysis.diagnosis import cause
from xlaprof.runtime.execution import value_checks

from .counting import Counts, counted

MASK = torch.tensor([[1, 0, 0, 1, 1], [0, 0, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
ROWS = torch.tensor([True, False, True, True])
COLUMNS = torch.tensor([False, True, True, False, True])
VALUES = torch.tensor([[3, 1, 0, 1, 3], [0, 2, 0, 2, 0], [3, 1, 0, 1, 3], [7, 7, 1, 1, 1]])


def fallbacks(counts: Counts) -> list[str]:
    """Operations that ran on the CPU."""
    return [name for name, n in counts.items() if "::" in name and n and name != "aten::_local_scalar_dense"]


def on_both(story: Callable[..., Any], *tensors: torch.Tensor) -> Counts:
    """Tell ``story`` on the CPU and on xla: the same results, none by a fallback. Counts of the story alone."""
    expected = story(*(t.clone() for t in tensors))
    there = [t.to("xla") for t in tensors]
    xr.sync()
    with counted() as counts:
        got = story(*there)
    assert not fallbacks(counts)
    assert all(t.device.type == "xla" for t in tree_leaves(got))
    xr.sync()
    torch.testing.assert_close(tree_map(lambda t: t.cpu(), got), expected, equal_nan=True)
    return counts


def _put(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    x[index] = value
    return x


def _add(x: torch.Tensor, index: Any) -> torch.Tensor:
    x[index] += 1
    return x


#: story over (values, mask, rows, columns) -> reads it costs
STORIES: dict[str, tuple[Callable[..., Any], int]] = {
    "nonzero": (lambda x, m, r, c: x.nonzero(), 1),
    "nonzero as a tuple": (lambda x, m, r, c: x.nonzero(as_tuple=True), 1),
    "where": (lambda x, m, r, c: torch.where(m), 1),
    "argwhere of two": (lambda x, m, r, c: (m.argwhere(), r.argwhere()), 2),
    "nonzero of known size": (lambda x, m, r, c: torch.nonzero_static(m, size=9), 0),
    "masked_select": (lambda x, m, r, c: x.masked_select(m), 1),
    "masked_select, broadcast": (lambda x, m, r, c: x[0].masked_select(r[:, None]), 1),
    "masked_scatter": (lambda x, m, r, c: x.masked_scatter(m, x.flip(0)), 0),
    "x[mask]": (lambda x, m, r, c: x[m], 1),
    "x[rows]": (lambda x, m, r, c: x[r], 1),
    "x[:, columns]": (lambda x, m, r, c: x[:, c], 1),
    "x.T[columns]": (lambda x, m, r, c: x.T[c], 1),
    "x[rows, 1:4]": (lambda x, m, r, c: x[r, 1:4], 1),
    "two masks": (lambda x, m, r, c: x[r, c], 1),
    "a mask and numbers": (lambda x, m, r, c: x[r, torch.tensor([4, 0, 1], device=x.device)], 1),
    "a mask of a part, apart from numbers": (
        lambda x, m, r, c: x.expand(2, 2, 4, 5)[:, torch.tensor([[1], [0]], device=x.device), :, c],
        1,
    ),
    "bytes": (lambda x, m, r, c: x[m.byte()], 1),
    "a mask on the host": (lambda x, m, r, c: x[MASK], 0),
    "one mask, many selections": (lambda x, m, r, c: (x[m], x.flip(0)[m], x.masked_select(m), m.nonzero()), 1),
    "x[mask] = number": (lambda x, m, r, c: _put(x, m, 9), 0),
    "x[mask] = values": (lambda x, m, r, c: _put(x, r, x[:3].flip(0)), 0),
    "x[rows, 1:4] = values": (lambda x, m, r, c: _put(x, (r, slice(1, 4)), x[1:, :3].flip(0)), 0),
    "x[rows, columns] = values": (lambda x, m, r, c: _put(x, (r, c), x[0, :3].flip(0)), 1),
    "x[mask] += 1": (lambda x, m, r, c: _add(x, m), 1),
    "part[mask] = values": (lambda x, m, r, c: (_put(x[:, 1:4], m[:, 1:4], x[0, :3].flip(0)), x), 0),
    "index_put": (lambda x, m, r, c: x.index_put((r, c), x[0, :3], accumulate=True), 1),
    "unique": (lambda x, m, r, c: x.unique(), 1),
    "unique with all": (lambda x, m, r, c: x.unique(return_inverse=True, return_counts=True), 1),
    "unique rows": (lambda x, m, r, c: x.unique(dim=0, return_inverse=True, return_counts=True), 1),
    "unique of the middle": (lambda x, m, r, c: x.reshape(2, 5, 2).unique(dim=1), 1),
    "unique_consecutive": (lambda x, m, r, c: x.unique_consecutive(return_inverse=True, return_counts=True), 1),
    "unique_consecutive columns": (lambda x, m, r, c: x[3:].unique_consecutive(True, True, dim=1), 1),
    "combinations": (lambda x, m, r, c: torch.combinations(x[0], 3), 1),
}

WHOLE: dict[str, tuple[Callable[..., Any], int]] = {
    "repeat_interleave": (lambda x: x.repeat_interleave(x[0], dim=1), 1),
    "repeat_interleave, twice": (lambda x: [x[i].repeat_interleave(n) for n in x[:1] for i in (0, 1)], 1),
    "repeat_interleave of int32": (lambda x: torch.repeat_interleave(x[3].int()), 1),
    "repeat_interleave of known size": (lambda x: x.repeat_interleave(x[0], dim=1, output_size=8), 0),
    "bincount": (lambda x: x.flatten().bincount(), 1),
    "bincount with a longer minimum": (lambda x: x[0].byte().bincount(minlength=6), 1),
    "bincount with weights": (lambda x: [n.bincount(w, 2) for n in x[:1] for w in (n.float(), n)], 1),
    "isin": (lambda x: torch.isin(x, x[1]), 0),
    "tensor_split": (lambda x: x.tensor_split(torch.tensor([1, 3])), 0),
}


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("name", STORIES)
def test_a_selection_is_the_cpus_and_costs_one_read_at_most(name: str) -> None:
    story, reads = STORIES[name]
    counts = on_both(story, VALUES, MASK, ROWS, COLUMNS)
    assert (counts.reads, counts.runs) == (reads, reads)


@pytest.mark.parametrize("name", WHOLE)
def test_numbers_that_say_how_long_a_result_is(name: str) -> None:
    story, reads = WHOLE[name]
    counts = on_both(story, VALUES)
    assert (counts.reads, counts.runs) == (reads, reads)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.uint8, torch.int32]
)
@pytest.mark.parametrize("name", [name for name in STORIES if "part" not in name])
def test_selections_of_every_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype is torch.bool and "+=" in name:
        pytest.skip("PyTorch does not add numbers to booleans in place")
    on_both(STORIES[name][0], VALUES.to(dtype), MASK, ROWS, COLUMNS)


def test_complex_numbers_are_selected() -> None:
    def story(x: torch.Tensor, m: torch.Tensor) -> Any:
        return x[m], x.nonzero(), x.masked_select(m), _put(x, m, 1 - 1j)

    on_both(story, torch.complex(VALUES.double(), VALUES.neg().double()), MASK)


EVERYWHERE: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.nonzero(),
    lambda x: x.nonzero(as_tuple=True),
    lambda x: x[x > 1],
    lambda x: x.masked_select(x > 1),
    lambda x: x.masked_scatter(x > 1, x),
    lambda x: x[None].index_put((x[None] > 1,), x.new_tensor(5)),
    lambda x: x.unique(return_inverse=True, return_counts=True),
    lambda x: x.unique_consecutive(return_inverse=True, return_counts=True),
    lambda x: torch.nonzero_static(x, size=3, fill_value=4),
]


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(0),
        torch.zeros(0, 3),
        torch.zeros(2, 0, 3),
        torch.tensor(2.0),
        torch.tensor(0.0),
        torch.zeros(2, 3),
        torch.full((3,), 4.0),
        torch.tensor([2.0, torch.nan, torch.nan, -0.0, 0.0]),
    ],
    ids=lambda x: f"{list(x.shape)} of {float(x.sum()):g}",
)
def test_nothing_a_single_element_nothing_true_all_true_and_nan(x: torch.Tensor) -> None:
    on_both(lambda x: [call(x) for call in EVERYWHERE], x)


def test_lengths_of_nothing() -> None:
    def story(x: torch.Tensor) -> Any:
        rows = x.new_zeros(0, 3)
        return (
            x.bincount(),
            x.bincount(minlength=3),
            torch.repeat_interleave(x),
            x.new_zeros(4).bincount(),
            torch.repeat_interleave(x.new_zeros(4)),
            rows.unique(dim=0, return_inverse=True, return_counts=True),
            rows[x.bool()],
        )

    assert on_both(story, torch.zeros(0, dtype=torch.int64)).reads == 2


def test_gradients_cost_no_read_of_their_own() -> None:
    def story(x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        x, value = x.requires_grad_(), x[0, :3].clone().requires_grad_()
        repeats = r.long() * 2
        results = [
            x[m],
            x[:, c],
            x[r, c],
            x.masked_select(m),
            x.masked_scatter(m, x * 2),
            x.repeat_interleave(repeats, dim=0),
            (x * 1).index_put((m,), value[0]),
            (x * 1).index_put((r, c), value, accumulate=True),
            _put(x * 1, (slice(None), c), value),
        ]
        total = sum((y * torch.arange(1.0, y.numel() + 1, device=y.device).reshape(y.shape)).sum() for y in results)
        assert isinstance(total, torch.Tensor)
        return list(torch.autograd.grad(total, (x, value)))

    counts = on_both(story, VALUES.float(), MASK, ROWS, COLUMNS)
    assert counts.reads == 4  # of the mask, of columns, of rows and of the sum of repeats


def test_a_masked_loss_reads_once_per_step_and_compiles_when_the_count_changes() -> None:
    torch.manual_seed(3)
    batches = torch.randn(5, 12, 6)
    labels = torch.randint(0, 3, (5, 12))
    counts_of = [7, 7, 5, 7, 5]
    for i, n in enumerate(counts_of):
        labels[i, torch.randperm(12)[: 12 - n]] = -1

    def train(device: str) -> tuple[list[float], list[Counts]]:
        torch.manual_seed(4)
        model = torch.nn.Linear(6, 3).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses, told = [], []
        steps = [(x.to(device), y.to(device)) for x, y in zip(batches, labels, strict=True)]
        for x, y in steps:
            xr.sync()
            with counted() as counts:
                optimizer.zero_grad()
                logits, kept = model(x), y >= 0
                loss = torch.nn.functional.cross_entropy(logits[kept], y[kept])
                loss.backward()
                optimizer.step()
                xr.sync()
            losses.append(loss.detach())
            told.append(counts)
        return [float(loss) for loss in losses], told

    expected, _ = train("cpu")
    losses, told = train("xla")
    assert losses == pytest.approx(expected, rel=1e-5)
    assert [counts.reads for counts in told] == [1] * 5
    assert [fallbacks(counts) for counts in told] == [[]] * 5
    assert [counts.compiles for counts in told[1:]] == [0, 1, 0, 0]


def test_the_log_has_a_read_of_one_number_on_the_line_and_the_size_that_changed(tmp_path: Path) -> None:
    batches = [torch.arange(70.0).to("xla") >= 70 - n for n in (65, 63)]
    xr.sync()
    with xlaprof.record(tmp_path / "run.log"):
        for batch in batches:
            chosen = batch.nonzero()  # the line
            xr.sync()
            del chosen
    told = list(log.read(tmp_path / "run.log"))
    texts = {0: ""} | {e.id: e.text for e in told if isinstance(e, events.Text)}
    stacks = {e.id: texts[e.frames[0].code] for e in told if isinstance(e, events.Stack)}
    reads = [e for e in told if isinstance(e, events.TransferFromDevice)]
    assert [(texts[e.op], e.bytes, e.tensors, stacks[e.stack]) for e in reads] == [
        ("aten::nonzero", 8, 1, "chosen = batch.nonzero()  # the line")
    ] * 2
    assert not [e for e in told if isinstance(e, events.Fallback)]
    change = [cause(e) for e in told if isinstance(e, events.Compile)][-1]
    assert change is not None
    assert (change.what, change.old, change.new) == ("size", "65", "63")
    assert change.subject == "result of aten::nonzero"
    assert stacks[change.stack] == "chosen = batch.nonzero()  # the line"


def test_a_mask_that_was_written_to_is_counted_again() -> None:
    mask = MASK.to("xla")
    xr.sync()
    assert len(mask.nonzero()) == 7
    mask[0] = True
    with counted() as counts:
        assert len(mask.nonzero()) == 9
        assert len(mask.nonzero()) == 9
    assert counts.reads == 1


def test_what_was_recorded_stays_pending() -> None:
    x = VALUES.float().to("xla")
    xr.sync()
    y = x * 3
    with counted() as counts:
        above = y[y > 6]
        xr.sync()
    assert (counts.runs, counts.reads) == (2, 1)
    assert above.tolist() == [9.0, 9.0, 9.0, 9.0, 21.0, 21.0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch.repeat_interleave(x[0] - 2),
        lambda x: torch.repeat_interleave(x),
        lambda x: (x[0] - 2).bincount(),
        lambda x: x.bincount(),
        lambda x: x[0].bincount(x[:, 0]),
        lambda x: x[0].bincount(minlength=-1),
        lambda x: x[x[:3] > 0],
        lambda x: x[:, x[:, 0] > 0],
        lambda x: x[x[:, 0] > 2, x[0] > 0],
        lambda x: x.masked_select(x),
        lambda x: x.masked_select(x[:, :3] > 0),
        lambda x: x.unique(dim=2),
        lambda x: x[:, :0].unique(dim=0),
        lambda x: torch.complex(x.float(), x.float()).unique(),
        lambda x: _put(x, (x[:, 0] > 2, x[0] > 0), x[0].neg()),
        lambda x: _put(x, (x[:, 0] > 2, x[0] > 1), x[0, :2]),
    ],
)  # fmt: skip
def test_errors_are_pytorchs(wrong: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        wrong(VALUES.clone())
    with pytest.raises(type(expected.value)) as raised:
        wrong(VALUES.to("xla"))
    assert str(raised.value) == str(expected.value)


def test_a_count_that_is_known_has_to_fit() -> None:
    x, mask = VALUES.to("xla"), MASK.to("xla")
    assert x[mask].shape == (7,)
    with pytest.raises(RuntimeError, match=r"value tensor of shape \[5\] cannot be broadcast .* result of shape \[7\]"):
        x[mask] = x[0].neg()
    x[mask] = x[0, 0]
    assert x[mask].tolist() == [3] * 7


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: _put(x, x > 2, x.new_zeros(5)), r"value tensor of shape \[5\] .* indexing result of shape \[6\]"),
        (lambda x: _put(x, (slice(None), x[0] > 2), x.new_zeros(4, 3)), r"result of shape \[4, 2\]"),
        (lambda x: x.masked_scatter(x > 2, x.new_zeros(5)), "Number of elements of source < number of ones in mask"),
        (lambda x: torch.repeat_interleave(x[0], output_size=9), "allocated size does not match required size"),
    ],
)
def test_a_count_that_nobody_reads_is_checked_when_debugging(wrong: Callable[..., Any], said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        wrong(VALUES.clone())
    x = VALUES.to("xla")
    with value_checks.debug_checks(), pytest.raises(RuntimeError, match=said):
        wrong(x).cpu()


def test_indexing_with_bytes_is_deprecated_on_the_users_line() -> None:
    x, mask = VALUES.to("xla"), MASK.byte().to("xla")
    with pytest.warns(UserWarning, match=r"indexing with dtype torch.uint8 is now deprecated") as told:
        _ = x[mask]
    assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize(
    "select", [lambda x, m, out: torch.masked_select(x, m, out=out), lambda x, m, out: torch.nonzero(m, out=out)]
)
def test_outputs_that_are_given_take_the_shape(select: Callable[..., Any]) -> None:
    def story(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        out = torch.empty(0, dtype=torch.int64, device=x.device)
        select(x, m, out)
        return out

    on_both(story, VALUES, MASK)
