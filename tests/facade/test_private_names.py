"""What PyTorch/XLA's own tests ask of its C++ module and of its helpers: graphs as text, products, patched layers."""

from __future__ import annotations

import re

import pytest
import torch
from runtime.test_device import in_a_fresh_process

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.debug.metrics as met  # isort: skip
from torch_xla.distributed.fsdp.utils import apply_xla_patch_to_nn_linear  # isort: skip
from torch_xla.distributed.spmd import xla_patched_nn_linear_forward  # isort: skip
from torch_xla.experimental.custom_kernel import repeat_with_fixed_output_size  # isort: skip
from torch_xla.stablehlo import exported_program_to_stablehlo  # isort: skip

assert xlaprof.torch_xla
XLAC = torch_xla._XLAC


def test_a_lowered_graph_names_its_operations_and_the_values_of_its_parameters() -> None:
    context = XLAC.lowering.LoweringContext()
    with pytest.raises(RuntimeError, match=r"call build\(tensors\) first"):
        context.hlo()
    a, b = (torch.tensor(values, device="xla") for values in ([1.0, 2.0], [4.0, 5.0]))
    context.build([a + b])
    text = context.hlo_text()
    assert re.findall(r'opcode: "(\w+)"', text) == ["parameter", "parameter", "add"]
    assert "element_type: F32\n" in text
    parameters = context.parameter_id_tensor_mapping()
    assert sorted(parameters) == [0, 1]
    for tensor in (a, b):
        assert parameters[context.tensor_parameter_id(tensor)].equal(tensor.cpu())
    assert context.tensor_parameter_id(a + 1) == -1


def test_parameters_are_those_that_the_graph_reads() -> None:
    context = XLAC.lowering.LoweringContext()
    x = torch.tensor([1, 2, 3], dtype=torch.bfloat16, device="xla")
    context.build([x * 0.3])
    numbers, value = context.parameter_id_tensor_mapping().values()
    assert numbers.tolist() == [0.3]
    assert value.equal(torch.tensor([1, 2, 3], dtype=torch.bfloat16))


def test_numbers_of_a_graph_are_shown_as_what_they_are_to_it() -> None:
    x = torch.ones(2, device="xla")
    power = XLAC._get_xla_tensors_text([x.pow(5)]).splitlines()
    assert power[1].startswith("  %0 = f32[] prim::Constant(), xla_shape=f32[], value=5")
    assert "aten::pow(%1, %0)" in power[-2]
    a, b, c = (torch.rand(5, 5, device="xla") for _ in range(3))
    torch_xla.sync()
    lines = XLAC._get_xla_tensors_text([torch.addcdiv(a, b, c, value=1.0)]).splitlines()
    assert "prim::Constant()" in lines[1]
    assert [line.split(" = ")[0] for line in lines if "xla::device_data" in line] == ["  %1", "  %2", "  %3"]
    assert "aten::addcdiv" in lines[5]
    # What travels packed with others is one value of the graph's dtype like any other.
    scaled = XLAC._get_xla_tensors_text([torch.ones(2, dtype=torch.bfloat16, device="xla") * 0.3])
    assert "bf16[] xla::device_data()" in scaled
    assert "f64" not in scaled
    assert "s64[] xla::device_data()" in XLAC._get_xla_tensors_text([torch.ones(2, device="xla").bool() * 7])


def test_names_of_dtypes() -> None:
    product = torch.rand(3, dtype=torch.half, device="xla").mul_(torch.tensor(7.0, dtype=torch.double, device="xla"))
    assert XLAC._get_xla_tensor_shape_type(product) == "f16"


def test_precision_by_its_older_name() -> None:
    before = XLAC._xla_get_mat_mul_precision()
    XLAC._xla_set_use_full_mat_mul_precision(use_full_mat_mul_precision=True)
    assert XLAC._xla_get_mat_mul_precision() == "highest"
    XLAC._xla_set_mat_mul_precision(before)


@pytest.mark.parametrize("contracted", [([2], [1]), ([-1], [-2])])
def test_products_over_any_dimensions(contracted: tuple[list[int], list[int]]) -> None:
    x, w = torch.randint(-15, 15, (10, 3, 4)), torch.randint(-15, 15, (10, 4, 5))
    narrow = (x.to(torch.int8).to("xla"), w.to(torch.int8).to("xla"))
    wide = XLAC._xla_dot_general(*narrow, (contracted, ([0], [0])), preferred_element_type=torch.int32)
    assert wide.dtype is torch.int32
    assert wide.cpu().equal((x @ w).int())
    plain = XLAC._xla_dot_general(x.to("xla"), w[0].to("xla"), (([2], [0]), ()))
    assert plain.cpu().equal(x @ w[0])


def test_four_bits_hold_what_they_hold() -> None:
    weight = torch.tensor([-8, -1, 7], dtype=torch.int8, device="xla")
    assert XLAC._xla_cast_int4(weight, weight.tolist()).cpu().equal(weight.cpu())


@pytest.mark.parametrize("shape", [(4, 3, 2), (2,)])
def test_patched_layers_keep_the_dimensions_of_their_input(shape: tuple[int, ...]) -> None:
    plain = torch.nn.Sequential(torch.nn.Linear(2, 4, bias=False))
    x = torch.randn(shape)
    patched = apply_xla_patch_to_nn_linear(
        torch.nn.Sequential(torch.nn.Linear(2, 4, bias=False)), xla_patched_nn_linear_forward
    )
    patched.load_state_dict(plain.state_dict())
    assert apply_xla_patch_to_nn_linear(patched) is patched  # twice: once
    out = patched.to("xla")(x.to("xla"))
    assert "reshape" not in XLAC._get_xla_tensors_hlo([out])
    out.sum().backward()
    plain(x).sum().backward()
    torch.testing.assert_close(out.cpu(), plain(x))
    torch.testing.assert_close(patched[0].weight.grad.cpu(), plain[0].weight.grad)


def test_repeating_into_a_length_known_now() -> None:
    x, repeats = torch.randn(10), torch.tensor([0, 5, 2, 0, 4, 9, 6, 7, 8, 0])
    met.clear_all()
    cut, filled = (repeat_with_fixed_output_size(x.to("xla"), repeats.to("xla"), n) for n in (20, 50))
    assert not met.executed_fallback_ops()
    whole = torch.repeat_interleave(x, repeats)
    assert cut.cpu().equal(whole[:20])
    assert filled.cpu().equal(torch.cat([whole, x[-1:].expand(50 - len(whole))]))


def test_an_exported_program_is_called_as_it_was_exported() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, dims: list[int] | None, keep: int, *, scale: torch.Tensor) -> object:
            return {"sum": (x * scale).sum(dims), "top": x.topk(keep), "nothing": None}

    x, scale = torch.randn(3, 4), torch.tensor(2.0)
    for dims in (None, [1]):
        module = exported_program_to_stablehlo(torch.export.export(Model(), (x, dims, 2), {"scale": scale}))
        result = module(x, dims, 2, scale=scale)
        torch.testing.assert_close(result["sum"], (x * scale).sum(dims))
        torch.testing.assert_close(result["top"].indices, x.topk(2).indices)
        assert result["nothing"] is None
    with pytest.raises(ValueError, match="2 is part of the exported program, which was called with 3"):
        module(x, [1], 3, scale=scale)
    with pytest.raises(TypeError, match="the program was exported with arguments"):
        module(x, scale=scale)


def test_the_gradient_of_a_sparse_bag_is_dense() -> None:
    bag = torch.nn.EmbeddingBag(10, 5, mode="sum", sparse=True)
    there = torch.nn.EmbeddingBag(10, 5, mode="sum", sparse=True, _weight=bag.weight.detach().clone()).to("xla")
    indices, offsets = torch.tensor([1, 2, 2, 7]), torch.tensor([0, 3])
    bag(indices, offsets).sum().backward()
    there(indices.to("xla"), offsets.to("xla")).sum().backward()
    assert there.weight.grad is not None
    assert not there.weight.grad.is_sparse
    assert bag.weight.grad is not None
    torch.testing.assert_close(there.weight.grad.cpu(), bag.weight.grad.to_dense())


@pytest.mark.slow
def test_operators_register_once_and_a_forked_child_can_name_the_device() -> None:
    done = in_a_fresh_process(
        """
        import os, warnings
        import xlaprof.torch_xla
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.debug.metrics as met
        print(repr(met.metrics_report()))
        torch_xla._XLAC._init_xla_lazy_backend()
        torch_xla._XLAC._init_xla_lazy_backend()
        print(met.counter_value("RegisterXLAFunctions"))
        x = torch.ones(2, device=xm.xla_device()) + 1
        torch_xla.sync()
        if os.fork() == 0:
            print(xm.xla_device(), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert done.stdout.split() == ["''", "1", "xla:0"], done.stderr


def test_the_device_is_the_same_by_every_name() -> None:
    assert xm.xla_device() == torch_xla.device() == torch.device("xla:0")
