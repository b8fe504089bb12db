"""Graphs as PyTorch/XLA prints them, which its readers match, and ``XLA_SAVE_TENSORS_FILE``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import xlaprof.torch_xla
from xlaprof.runtime.instruments import graph_dump
from xlaprof.torch_xla import _environment

import torch_xla  # isort: skip
import torch_xla.distributed.xla_backend as backend  # isort: skip

assert xlaprof.torch_xla
assert backend
HLO = torch_xla._XLAC._get_xla_tensors_hlo


def test_an_instruction_is_named_after_what_it_does_and_shows_its_operands() -> None:
    x = torch.randn(3, 4).to("xla")
    text = HLO([(x @ x.t()).to(torch.bfloat16)])
    assert re.search(
        r"^  %dot\.\d+ = f32\[3,3\]\{1,0\} dot\(f32\[3,4\]\{1,0\} %\S+, f32\[4,3\]\S* %\S+\), ", text, re.M
    )
    assert re.search(r"ROOT %convert\.\d+ = bf16\[3,3\]\{1,0\} convert\(f32\[3,3\]\{1,0\} %dot\.\d+\)$", text, re.M)
    assert "metadata" not in text


@pytest.mark.parametrize(
    ("operation", "opcode"),
    [
        (lambda x: torch.distributed.all_reduce(x), "all-reduce"),
        (lambda x: torch.distributed.broadcast(x, 0), "all-reduce"),
        (lambda x: torch.distributed.reduce_scatter(x, [x.clone()]), "reduce-scatter"),
        (lambda x: torch.distributed.all_gather([x], x.clone()), "all-gather"),
    ],
)
def test_a_collective_of_one_can_be_looked_at(
    operation: object, opcode: str, group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")
    x = torch.arange(2, device="xla") + 1
    operation(x)  # type: ignore[operator]
    assert len(re.findall(rf"%{opcode}\.\d+ = .+ {opcode}\(", HLO([x]))) == 1
    assert x.tolist() == [1, 2]


@pytest.fixture
def group() -> Iterator[None]:
    torch.distributed.init_process_group("xla", init_method="xla://")
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    torch_xla.sync()  # what other stories have left
    monkeypatch.setenv("XLA_SAVE_TENSORS_FILE", str(tmp_path / "graphs"))
    yield tmp_path / "graphs.0"
    monkeypatch.setattr(graph_dump, "path", "")


@pytest.mark.parametrize(
    ("kind", "size", "holds"),
    [("text", 3, "aten::mul"), ("hlo", 5, "%multiply."), ("dot", 7, "digraph G"), ("stablehlo", 9, "stablehlo.mul")],
)
def test_every_graph_that_runs_is_saved(
    kind: str, size: int, holds: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_SAVE_TENSORS_FMT", kind)

    reported = [""]
    for _ in range(2):  # the second is compiled no more
        y = torch.ones(size, size).to("xla") * 2.5
        torch_xla.sync()
        del y
        reported.append(saved.read_text())
    once = reported[1]
    assert once.count("## BEGIN_GRAPH") == once.count("## END_GRAPH") == 1
    assert holds in once
    assert f"test_every_graph_that_runs_is_saved ({__file__}:" in once
    assert once.splitlines()[-3] == "## END_GRAPH"
    assert reported[2] == 2 * once


def test_so_is_one_of_torch_compile(saved: Path) -> None:
    double = torch.compile(lambda x: x.cos() * 2.5, backend="openxla")
    x = torch.ones(2, 11).to("xla")
    double(x)
    before = saved.read_text().count("aten::cos")
    double(x)
    assert saved.read_text().count("aten::cos") == before + 1


def test_a_format_that_there_is_not(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_SAVE_TENSORS_FMT", "poetry")
    y = torch.ones(13).to("xla") * 2.5
    with pytest.warns(UserWarning, match="no graphs are saved: XLA_SAVE_TENSORS_FMT=poetry is none of text, hlo"):
        assert y.sum().item() == 13 * 2.5
    assert not saved.exists()


def test_hlo_says_where_its_instructions_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Tanh()).to("xla")
    y = model(torch.ones(3, 4, device="xla"))
    assert "metadata" not in torch_xla._XLAC._get_xla_tensors_hlo([y])
    monkeypatch.setenv("XLA_HLO_DEBUG", "1")
    text = torch_xla._XLAC._get_xla_tensors_hlo([y])
    place = r"test_graphs_as_text.py:\d+"
    assert re.search(rf'tanh\(.*op_name="[^"]*Sequential/Tanh[^"]*/aten__tanh/{place}/tanh"', text), text
    assert re.search(rf'dot\(.*op_name="[^"]*Sequential/Linear[^"]*/aten__addmm/{place}/dot_general"', text), text
    assert torch_xla._XLAC._get_ir_debug()
    monkeypatch.delenv("XLA_HLO_DEBUG")
    monkeypatch.setattr("xlaprof.torch_xla._graphs._override", None)  # or else what is set here would outlive the test
    assert not torch_xla._XLAC._get_ir_debug()
    torch_xla._XLAC._set_ir_debug(True)
    context = torch_xla._XLAC.lowering.LoweringContext()
    context.build([y])
    instructions = [i for c in json.loads(context.hlo_json())["computations"] for i in c["instructions"]]
    names = [instruction.get("metadata", {}).get("opName", "") for instruction in instructions]
    assert any("aten__tanh" in name for name in names)


def test_types_that_a_variable_asked_for_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_USE_BF16", "1")
    with pytest.warns(UserWarning, match=r"XLA_USE_BF16 has no effect.*Use model.to\(torch.bfloat16\)"):
        _environment.finish()
