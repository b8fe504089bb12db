"""Names that scripts meet now and then: precision, readiness, caches, older and newer forms of a call."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from types import ModuleType

import pytest
import torch
from runtime.counting import counted

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.backends as backends  # isort: skip
import torch_xla.core.xla_builder as xb  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
from torch_xla.experimental import callback, deprecation, plugins  # isort: skip
from torch_xla.experimental import scan as scan_module  # isort: skip
from torch_xla.experimental import scan_layers as scan_layers_module  # isort: skip

assert xlaprof.torch_xla
XLAC = torch_xla._XLAC


def test_precision_is_part_of_the_program_that_runs_next(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4, 4, device="xla")
    torch_xla.sync()

    def compiled() -> int:
        product = x @ x
        with counted() as counts:
            torch_xla.sync()
        assert product.shape == (4, 4)
        return counts.compiles

    before = backends.get_mat_mul_precision()
    try:
        compiled()
        assert compiled() == 0
        backends.set_mat_mul_precision("highest")
        assert backends.get_mat_mul_precision() == "highest"
        assert "precision = [HIGHEST, HIGHEST]" in xm.get_stablehlo([x @ x])
        assert [compiled(), compiled()] == [1, 0]
        backends.set_mat_mul_precision("highest")
        assert compiled() == 0
        with pytest.raises(ValueError, match="default, high or highest, not 'exact'"):
            backends.set_mat_mul_precision("exact")
    finally:
        backends.set_mat_mul_precision(before)
    assert {(r.name, r.levelno) for r in caplog.records} == {("torch_xla.backends", logging.WARNING)}


def test_the_customary_names_are_on_the_package_too() -> None:
    assert (torch_xla.xm, torch_xla.xr, torch_xla.xu) == (xm, torch_xla.runtime, torch_xla.utils.utils)
    assert torch_xla.xmp.spawn is importlib.import_module("torch_xla.distributed.xla_multiprocessing").spawn
    assert torch_xla.xenv.TPU_NUM_DEVICES == "TPU_NUM_DEVICES"


@pytest.mark.parametrize(
    ("module", "name", "same"),
    [
        ("amp.syncfree.adam", "Adam", "amp.syncfree"),
        ("amp.syncfree.adamw", "AdamW", "amp.syncfree"),
        ("amp.syncfree.sgd", "SGD", "amp.syncfree"),
        ("core.dynamo_bridge", "extract_compiled_graph", "_dynamo.dynamo_bridge"),
    ],
)
def test_a_name_in_the_module_that_defines_it_is_the_same(module: str, name: str, same: str) -> None:
    defined, exported = (importlib.import_module(f"torch_xla.{path}") for path in (module, same))
    assert getattr(defined, name) is getattr(exported, name)


def test_what_is_not_served_is_named() -> None:
    with pytest.raises(AttributeError, match=r"'torch_xla\.core\.xla_model' has no attribute 'xla_devices_of'"):
        _ = xm.xla_devices_of
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'torch_xla\.experimental\.nothing'"):
        importlib.import_module("torch_xla.experimental.nothing")


def test_an_event_tells_when_a_value_is_there() -> None:
    x = torch.ones(3, device="xla")
    torch_xla.sync()
    doubled = x * 2
    with pytest.raises(RuntimeError, match="nothing computes the tensor yet"):
        callback.on_ready_event(doubled)
    torch_xla.sync()
    assert callback.on_ready_event(doubled).wait(60)
    with pytest.raises(RuntimeError, match="takes a tensor on xla, got one on cpu"):
        callback.on_ready_event(torch.ones(1))


def test_traces_that_are_kept_can_be_dropped() -> None:
    calls = 0

    def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        calls += 1
        return carry + x, carry

    def traced() -> int:
        before = calls
        scan_module.scan(step, torch.zeros((), device="xla"), torch.ones(3, device="xla"), is_fn_pure=True)
        return calls - before

    first = traced()
    assert traced() == 0
    scan_module._SCAN_COMPUTATION_CACHE.clear()
    assert traced() == first
    layers = [torch.nn.Linear(2, 2).to("xla") for _ in range(2)]
    scan_layers_module._ONE_LAYER_CACHE.clear()
    scan_layers_module.scan_layers(layers, torch.ones(2, device="xla"))
    assert len(scan_layers_module._ONE_LAYER_CACHE) == 0
    for _ in range(2):
        scan_layers_module.scan_layers(layers, torch.ones(2, device="xla"), is_layer_pure=True)
    assert len(scan_layers_module._ONE_LAYER_CACHE) == 1


def test_a_number_of_devices_comes_first_now() -> None:
    assert xm.get_xla_supported_devices(1) == xm.get_xla_supported_devices(max_devices=1) == ["xla:0"]


def test_a_computation_of_operations_is_called_by_name() -> None:
    x = torch.full((2,), 3.0, device="xla")
    square = xb.create_computation("square_plus", lambda a, more: a * a + xb.Op.scalar(None, more), [], more=1.0)
    (found,) = XLAC._xla_user_computation("xla::square_plus", [x], square)
    assert found.tolist() == [10.0, 10.0]


def test_an_old_name_says_more(caplog: pytest.LogCaptureFixture) -> None:
    old = deprecation.deprecated(ModuleType("places"), abs, old_name="absolute", extra_msg="It goes in 3.0.")
    assert (old(-1), old(-2)) == (1, 2)
    (record,) = caplog.records
    assert record.getMessage() == "places.absolute is deprecated. Use builtins.abs instead. It goes in 3.0."


def test_a_library_that_is_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Toaster(plugins.DevicePlugin):
        def library_path(self) -> str:
            return str(library)

    library = tmp_path / "toaster.so"
    library.write_text("no library")
    with pytest.raises(RuntimeError, match=r"toaster\.so is no plugin for PJRT_DEVICE=TOASTER: "):
        plugins.register_plugin("TOASTER", Toaster())
    monkeypatch.setenv("PJRT_DEVICE", "TOASTER")
    with pytest.raises(KeyError, match="TOASTER"):
        plugins.default()
    with pytest.raises(NotImplementedError, match="DevicePlugin has no library_path"):
        plugins.register_plugin("OVEN", plugins.DevicePlugin())
    plugins.register_installed_plugins()  # none is installed
    monkeypatch.setenv("PJRT_DYNAMIC_PLUGINS", "1")
    assert plugins.using_dynamic_plugins()
    assert torch_xla.plugins is plugins
