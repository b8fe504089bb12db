"""``xla_builder.call_jax`` and ``j2t_autograd``: the user's own jax functions, called with tensors on ``xla``."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import pytest
import torch
from runtime.counting import counted

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.core.xla_builder as xb  # isort: skip
from torch_xla._internal.jax_workarounds import jax_env_context, jax_import_guard, requires_jax  # isort: skip
from torch_xla.experimental.assume_pure import assume_pure, j2t_autograd  # isort: skip

assert xlaprof.torch_xla


def traces() -> int:
    count: int = xb._jax_to_xla_computation_cache_elements()
    return count


def test_tensors_are_arrays_to_the_function_and_arrays_are_tensors() -> None:
    def mixed(a: jax.Array, scale: float, *, more: dict[str, jax.Array], kind: str, left_out: None) -> object:
        assert kind == "sum"
        assert left_out is None
        return {"sum": a * scale + more["b"] + jnp.ones(3), "pair": (jnp.argmax(a), a > 1)}

    a, b = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.5, 0.25, 0.125])
    found = xb.call_jax(mixed, (a.to("xla"), 2.0), {"more": {"b": b.to("xla")}, "kind": "sum", "left_out": None})
    torch.testing.assert_close(found["sum"].cpu(), a * 2 + b + 1)
    assert found["sum"].dtype == torch.float32  # as in the user's jax, whose own numbers have 32 bits
    most, larger = found["pair"]
    assert (most.item(), larger.tolist()) == (1, [False, True, True])


def test_a_call_is_recorded_and_known_the_next_time() -> None:
    def waves(a: jax.Array, b: jax.Array) -> jax.Array:
        return a + jnp.sin(b)

    gc.collect()
    torch_xla.sync()  # what other tests have left pending is none of the first graph
    for step in range(3):
        x = torch.ones(3, 3, device="xla")
        with counted() as counts:
            y = xb.call_jax(waves, (x, x * (step + 2)), name="waves")
            assert "xla::waves" in torch_xla._XLAC._get_xla_tensors_text([y])
            torch_xla.sync()
        assert (counts.runs, counts.compiles) == (1, 1 if step == 0 else 0)


def test_what_is_traced_again() -> None:
    def shifted(values: dict[str, jax.Array], by: float) -> jax.Array:
        return values["a"] + by

    wide, narrow = torch.ones(3, 3, device="xla"), torch.ones(2, device="xla")
    gc.collect()
    before = traces()
    for values, by in [(wide, 1.0), (wide, 1.0), (narrow, 1.0), (narrow, 2.0), (narrow, 2)]:
        assert xb.call_jax(shifted, ({"a": values}, by)).flatten()[0].item() == 1 + by
    assert traces() - before == 4  # once for each shape, and number
    with jax.default_matmul_precision("highest"):
        xb.call_jax(shifted, ({"a": wide}, 1.0))
    assert traces() - before == 5
    del shifted
    gc.collect()
    assert traces() == before  # what nobody can call any more is forgotten


def test_a_function_that_is_gone_was_recorded() -> None:
    y = xb.call_jax(lambda a: a * 3, (torch.ones(2, device="xla"),))
    gc.collect()
    assert y.tolist() == [3.0, 3.0]


def test_wide_values_stay_wide_and_no_tensor_is_needed() -> None:
    big = torch.tensor([2**40], device="xla")
    assert xb.call_jax(lambda x: x + 1, (big,)).tolist() == [2**40 + 1]
    assert xb.call_jax(lambda: jnp.arange(3), ()).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match=r"add wants tensors on xla, not on cpu: move it there first"):
        xb.call_jax(jnp.add, (torch.ones(2), big), name="add")


def test_it_is_part_of_a_pure_function() -> None:
    a, b = torch.randn(3, 3, device="xla"), torch.randn(3, 3, device="xla")
    pure = assume_pure(lambda a, b: xb.call_jax(jnp.dot, (a, b)) + 1)
    for _ in range(2):
        torch.testing.assert_close(pure(a, b), a @ b + 1)


def test_gradients_pass_through_what_jax_differentiates() -> None:
    product = j2t_autograd(lambda a, b, n=1: {"y": jnp.sin(a @ b) * n, "greatest": jnp.argmax(a)})
    torch.manual_seed(0)
    host = [torch.randn(3, 3, requires_grad=True) for _ in range(2)]
    a, b = (t.detach().to("xla").requires_grad_() for t in host)
    before = traces()
    for _ in range(2):
        a.grad = b.grad = None
        found = product(a, b, n=3)
        found["y"].square().sum().backward()
        torch_xla.sync()
    assert traces() - before == 2  # one for each pass
    (torch.sin(host[0] @ host[1]) * 3).square().sum().backward()
    for got, want in zip((a, b), host, strict=True):
        assert got.grad is not None
        assert want.grad is not None
        torch.testing.assert_close(got.grad.cpu(), want.grad)
    assert found["greatest"].item() == host[0].argmax().item()
    with pytest.raises(RuntimeError, match="no second gradients"):
        torch.autograd.grad(product(a, b)["y"].sum(), a, create_graph=True)


def test_there_is_nothing_to_guard_jax_from() -> None:
    jax_import_guard()

    @requires_jax  # type: ignore[untyped-decorator]
    def one() -> int:
        return 1

    with jax_env_context():
        assert one() == 1
