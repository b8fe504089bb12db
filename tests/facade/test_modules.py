"""What the facade adds of its own: operations of the user's, graphs as text, comparators, helpers of scripts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from runtime.counting import counted

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.amp.syncfree as syncfree  # isort: skip
import torch_xla.core.functions as xf  # isort: skip
import torch_xla.core.xla_builder as xb  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.core.xla_op_registry as xor  # isort: skip
import torch_xla.debug.metrics_compare_utils as mcu  # isort: skip
import torch_xla.debug.model_comparator as mc  # isort: skip
import torch_xla.test.test_utils as xtu  # isort: skip
import torch_xla.utils.serialization as xser  # isort: skip
import torch_xla.utils.utils as xu  # isort: skip

assert xlaprof.torch_xla
XLAC = torch_xla._XLAC


def test_an_operation_of_the_users_own_is_compiled_into_the_graph() -> None:
    def slice_and_add(a, b, dimno=0):
        sa = a.slice_in_dim(start_index=0, limit_index=1, dimno=dimno)
        sb = b.slice_in_dim(start_index=1, limit_index=2, dimno=dimno)
        return xb.Op.tuple((sa + sb, (sa > sb).cast(xb.Type.S32)))

    op = xor.register("slice_and_add", slice_and_add)
    x, y = torch.randn(2, 2), torch.randn(2, 2)
    there = x.to("xla"), y.to("xla")
    torch_xla.sync()
    with counted() as counts:
        total, larger = op(*there, dimno=1)
        doubled = total * 2
        torch_xla.sync()
    assert counts.runs == 1
    torch.testing.assert_close(doubled.cpu(), 2 * (x[:, :1] + y[:, 1:]))
    assert larger.cpu().equal((x[:, :1] > y[:, 1:]).int())
    assert larger.dtype is torch.int32
    assert "slice_and_add" in XLAC._get_xla_tensors_text([op(*there)[0]])


def test_control_flow_of_the_builder() -> None:
    def op_fn(a, b, limit=None):
        def cond(counter, a, b):
            return counter < xb.Op.scalar(counter.builder(), limit, dtype=xb.Type.S32)

        def body(counter, a, b):
            return xb.Op.tuple((counter + xb.Op.scalar(counter.builder(), 1, dtype=xb.Type.S32), a + b, b))

        zero = xb.Op.scalar(a.builder(), 0, dtype=xb.Type.S32)
        total = xb.Op.mkwhile((zero, a, b), cond, body).get_tuple_element(1)
        positive = total.reduce_all(xb.Op.zero(None), lambda p, q: p + q) > xb.Op.zero(None)
        return positive.mkconditional((total, a), lambda t, a: t, lambda t, a: a)

    op = xor.register("loop", op_fn)
    a, b = torch.ones(2), torch.full((2,), 2.0)
    assert op(a.to("xla"), b.to("xla"), limit=10).tolist() == [21.0, 21.0]
    assert op(a.to("xla"), -b.to("xla"), limit=10).tolist() == [1.0, 1.0]


def test_what_is_pending_can_be_read() -> None:
    x = torch.randn(3, 4, device="xla")
    torch_xla.sync()
    y = (x @ x.t()).relu()
    text = XLAC._get_xla_tensors_text([y])
    assert text.startswith("IR {")
    assert re.search(r"%\d+ = f32\[3,3\]\{1,0\} aten::mm\(%\d+, %\d+\), xla_shape=f32\[3,3\]\{1,0\}", text)
    assert "ROOT=0" in text
    assert "HloModule" in XLAC._get_xla_tensors_hlo([y])
    assert "stablehlo.dot_general" in xm.get_stablehlo([y])
    assert "XLAData: None" in XLAC._get_xla_tensor_debug_info(y)
    assert XLAC._check_tensor_need_materialization([x, y]) == [False, True]
    xm.unlazy([y])
    assert "IR: None" in XLAC._get_xla_tensor_debug_info(y)


def test_save_reads_everything_at_once(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2).to("xla")
    state = {"model": model.state_dict(), "sum": model.weight.sum(), "epoch": 3}
    with counted() as counts:
        xm.save(state, tmp_path / "model.pt")
    assert (counts.runs, counts.reads) == (1, 1)
    loaded = torch.load(tmp_path / "model.pt")
    assert loaded["epoch"] == 3
    assert type(loaded["model"]) is type(model.state_dict())
    assert {t.device.type for t in loaded["model"].values()} == {"cpu"}
    xser.save(state, str(tmp_path / "big.pt"))
    assert xser.load(str(tmp_path / "big.pt"))["sum"].item() == pytest.approx(state["sum"].item())


def test_random_state_is_a_number() -> None:
    torch_xla.manual_seed(7)
    assert xm.get_rng_state() == 7
    first = torch.rand(2, device="xla").tolist()
    later = xm.get_rng_state()
    with xm.fork_rng():
        xm.set_rng_state(7)
        assert torch.rand(2, device="xla").tolist() == first
    assert xm.get_rng_state() == later


@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.1, "dampening": 0.2}, {"dampening": 0.2, "maximize": True}], ids=str
)
def test_a_step_that_found_infinities_is_skipped_without_a_read(options: dict[str, Any]) -> None:
    weight = torch.nn.Parameter(torch.ones(2, device="xla"))
    plain = torch.nn.Parameter(torch.ones(2))
    options = {"lr": 0.1, "momentum": 0.9, **options}
    skipping, usual = syncfree.SGD([weight], **options), torch.optim.SGD([plain], **options)
    for found, gradient in ((1.0, float("inf")), (0.0, 2.0), (1.0, float("nan")), (0.0, 1.0)):
        weight.grad = torch.full_like(weight, gradient)
        with counted() as counts:
            skipping.step(found_inf=torch.full((), found, device="xla"))
            torch_xla.sync()
        assert counts.reads == 0
        if not found:
            plain.grad = torch.full_like(plain, gradient)
            usual.step()
    torch.testing.assert_close(weight.detach().cpu(), plain.detach())


def test_nms_keeps_the_best_boxes() -> None:
    boxes = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6], [0, 0, 0.5, 0.5]])
    scores = torch.tensor([0.9, 0.95, 0.5, 0.05])
    selected, count = xf.nms(boxes.to("xla"), scores.to("xla"), torch.tensor(0.1), torch.tensor(0.5), 3)
    assert (selected.tolist(), count.item()) == ([1, 2, 0], 2)


def test_reports_are_compared_by_number() -> None:
    before = ["Metric: CompileTime\n  TotalSamples: 2\n  Accumulator: 01m02s003ms\nCounter: MarkStep\n  Value: 7\n"] * 2
    points = mcu.get_data_points_from_metrics_reports(before)
    assert points["CompileTime__Accumulator_sec"] == [62.003, 62.003]
    assert mcu.compare_metrics(points, before[0]) == ""
    worse = before[0].replace("Value: 7", "Value: 9") + "Counter: aten::nonzero\n  Value: 1\n"
    lines = mcu.compare_metrics(points, worse).splitlines()
    assert lines[0].startswith("MarkStep__Value is outside the expected range using tolerance: 2.0. Lower limit: 7.0")
    assert lines[1] == "Found new aten counter: aten::nonzero__Value: 1"


def test_tensors_of_two_runs_are_compared(tmp_path: Path) -> None:
    for folder, value in (("one", 1.0), ("two", 1.5)):
        (tmp_path / folder).mkdir()
        mc.configure(str(tmp_path / folder))
        mc.save("layer1", torch.full((2,), value, device="xla"))
        mc.save("same", torch.ones(1))
    mc.configure(None)
    report = mc.compare(str(tmp_path / "one"), str(tmp_path / "two"))
    assert report.splitlines() == [
        'Changes in saved tensor "layer1" with id=0',
        "  [0]: 1.0 vs. 1.5",
        "  [1]: 1.0 vs. 1.5",
    ]


def test_what_example_scripts_print(capsys: pytest.CaptureFixture[str]) -> None:
    xtu.print_training_update(xm.xla_device(), 10, 0.5, 100.0, 90.0, epoch=1)
    line = capsys.readouterr().out
    assert line.startswith("| Training Device=xla:0/0 Epoch=1 Step=10 Loss=0.50000 Rate=100.00 GlobalRate=90.00 Time=")


def test_nested_values_are_visited_once_and_cycles_end() -> None:
    shared = [1, "a"]
    data = {"x": shared, "y": (shared, 2.5)}
    data["self"] = data
    seen = []
    xu.for_each_instance(data, lambda v: isinstance(v, (int, str, float)), seen.append)
    assert seen == ["x", 1, "a", "y", 2.5, "self"]
    changed = xu.for_each_instance_rewrite({"x": shared}, lambda v: v == 1, lambda v: 10)
    assert (changed, shared) == ({"x": [10, "a"]}, [1, "a"])


def test_an_exported_program_as_stablehlo(tmp_path: Path) -> None:
    from torch_xla.stablehlo import StableHLOGraphModule, exported_program_to_stablehlo

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3)
    module = exported_program_to_stablehlo(torch.export.export(model, (x,)))
    assert "stablehlo.dot_general" in module.get_stablehlo_text()
    torch.testing.assert_close(module(x), model(x))
    module.save(str(tmp_path))
    assert {p.name for p in (tmp_path / "data").iterdir()} == {"0.weight.npy", "0.bias.npy"}
    torch.testing.assert_close(StableHLOGraphModule.load(str(tmp_path))(x.to("xla")), model(x))


def test_a_saved_program_is_called_as_it_was_exported(tmp_path: Path) -> None:
    from torch_xla.stablehlo import StableHLOGraphModule, save_torch_model_as_stablehlo

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([0.5, 3.0], dtype=torch.bfloat16))

        def forward(self, x: dict[str, torch.Tensor], times: int, *, by: torch.Tensor) -> dict[str, object]:
            return {"y": x["x"] * times * by + self.weight, "count": x["n"] + 1, "left_out": None}

    given = ({"x": torch.ones(2), "n": torch.tensor([2**40])}, 3)
    named = {"by": torch.tensor([2.0, 4.0])}
    save_torch_model_as_stablehlo(Scaled(), given, str(tmp_path / "program"), kwargs=named)
    loaded = StableHLOGraphModule.load(str(tmp_path / "program"))
    found = loaded(*given, **named)
    assert found["y"].tolist() == [6.5, 15.0]
    assert (found["count"].tolist(), found["left_out"]) == ([2**40 + 1], None)

    with pytest.raises(ValueError, match="3 is part of the exported program"):
        loaded(given[0], 4, **named)
    with pytest.raises(FileNotFoundError):
        StableHLOGraphModule.load(str(tmp_path))

    meta = tmp_path / "program" / "functions" / "forward.meta"
    meta.write_text('{"name": "forward", "weights": ["weight"]}')  # by another version
    with pytest.raises(RuntimeError, match="no signature that could be written down"):
        StableHLOGraphModule.load(str(tmp_path / "program"))


def test_what_is_written_of_an_exported_program(tmp_path: Path) -> None:
    from torch_xla import stablehlo

    model, x = torch.nn.Linear(3, 4).eval(), torch.randn(2, 3)
    program = torch.export.export(model, (x,))
    options = stablehlo.StableHLOExportOptions(include_human_readable_text=False, save_weights=False)
    stablehlo.save_as_stablehlo(program, str(tmp_path / "bare"), options)
    written = {path.name for path in (tmp_path / "bare").rglob("*.*")}
    assert written == {"forward.bytecode", "forward.meta"}
    loaded = stablehlo.StableHLOGraphModule.load(str(tmp_path / "bare"))
    without = stablehlo.exported_program_to_stablehlo(program, stablehlo.StableHLOExportOptions(export_weights=False))
    assert without.state_dict == {}
    for module in (loaded, without):
        with pytest.raises(RuntimeError, match="takes 2 weights that it was exported or saved without"):
            module(x)
    other = torch.randn(5, 3)
    sizes = torch.export.Dim.AUTO
    flexible = torch.export.export(model, (x,), dynamic_shapes={"input": {0: sizes}})
    five = stablehlo.StableHLOExportOptions(override_tracing_arguments=(other,))
    module = stablehlo.exported_program_to_stablehlo(flexible, five)
    torch.testing.assert_close(module.evaluate("forward", (other,)), model(other))
    options.export_node_metadata = True
    with pytest.raises(NotImplementedError, match=r"StableHLOExportOptions\.export_node_metadata=True is not served"):
        stablehlo.exported_program_to_stablehlo(program, options)


def test_old_names_say_once_what_the_new_ones_are(caplog: pytest.LogCaptureFixture) -> None:
    from torch_xla.experimental.deprecation import deprecated, mark_deprecated, register_deprecated

    def new(x: int) -> int:
        return x + 1

    module = ModuleType("of_the_user")
    register_deprecated(module, new)
    older = deprecated(module, new, "older")

    @mark_deprecated(new)
    def oldest(x: int) -> int:
        return x - 1

    assert [module.new(1), module.new(2), older(3), oldest(4), oldest(5)] == [2, 3, 4, 5, 6]
    says = [record.getMessage().split(".<")[0].replace(__name__, "here") for record in caplog.records]
    assert [line.split(" is deprecated. Use ")[0] for line in says] == [
        "of_the_user.new",
        "of_the_user.older",
        "oldest",
    ]


@pytest.mark.slow
def test_the_example_script_runs_as_it_is(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "torch_xla_script.py"
    assert "xlaprof" not in script.read_text().split('"""')[2]
    done = subprocess.run(
        [sys.executable, "-m", "xlaprof", "run", "--no-report", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["epoch 0", "epoch 1", "epoch 2"]
    assert lines[3].startswith("2.9.0")
