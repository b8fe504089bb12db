"""What PyTorch's operators refuse on the CPU, they refuse on ``xla``: by the same type of error, in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves

import xlaprof.runtime as xr


def refusal(op: Any, sample: Any) -> Exception | None:
    """What ``op`` raises for a sample, when it is called or when its results are read."""
    try:
        result = op(sample.input, *sample.args, **sample.kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                leaf.cpu()
    except Exception as error:
        return error
    return None


def disagreements(op: Any) -> Iterator[str]:
    """The error inputs of an OpInfo entry that fail otherwise on ``xla`` than the entry says, and than on the CPU."""
    on_cpu = [refusal(op, e.sample_input) for e in op.error_inputs("cpu")]
    accepted = {e.error_regex for e, error in zip(op.error_inputs("cpu"), on_cpu, strict=True) if error is None}
    refused = {(type(error), str(error)) for error in on_cpu if error is not None}
    for i, error_input in enumerate(op.error_inputs("xla")):
        if error_input.error_regex in accepted:
            continue  # this build of PyTorch accepts it
        error = refusal(op, error_input.sample_input)
        if (type(error), str(error)) in refused:
            continue  # the CPU's own words, where the entry has others for other devices: narrow_copy
        if not isinstance(error, error_input.error_type) or not re.search(error_input.error_regex, str(error)):
            yield f"{op.formatted_name}[{i}]: {error!r}, not {error_input.error_regex!r}"


INFOS = {op.formatted_name: op for op in op_db if op.error_inputs_func is not None}
#: shapes, dtypes, dimensions, out= of the wrong dtype or overlapping, lists, distributions' parameters
EVERYDAY = (
    "add", "amax", "arange", "bernoulli", "cat", "complex", "index_select", "kthvalue", "masked_fill", "mean",
    "nn_functional_conv2d", "nn_functional_embedding", "nn_functional_multi_margin_loss", "reshape", "take", "unbind",
)  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_operators(name: str) -> None:
    assert list(disagreements(INFOS[name])) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_whole_database() -> None:
    found = [line for op in INFOS.values() for line in disagreements(op)]
    # where() checks devices first, and this entry mixes cuda's with the CPU's
    assert [line for line in found if not line.startswith("where")] == []


def test_the_error_is_pytorchs_with_a_note_of_the_operation_and_the_line() -> None:
    x = torch.ones(2, 3, device="xla")
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)") as caught:
        x @ x
    line = caught.traceback[0].lineno + 1
    assert caught.value.__notes__ == [f"on xla: aten::mm(f32[2,3], f32[2,3]) at {__file__}:{line}"]
    assert (x.sum() + 1).item() == 7.0


def test_put_takes_as_many_elements_of_its_own_dtype_as_there_are_places() -> None:
    def put(device: str, of: torch.Tensor, source: torch.Tensor) -> Any:
        at = torch.tensor([1, 2], device=device)
        return refusal(lambda x, y: x.put(at, y), SampleInput(of.to(device), args=(source.to(device),)))

    for of, source in ((4, torch.ones(1)), (4, torch.ones(2, dtype=torch.int64)), (0, torch.ones(2))):
        expected = put("cpu", torch.zeros(of), source)
        assert expected is not None
        error = put("xla", torch.zeros(of), source)
        assert (type(error), str(error)) == (type(expected), str(expected))


def test_an_error_in_a_backward_pass_names_the_operation() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] @ gradients[0]

    w = torch.ones(2, 3, device="xla", requires_grad=True)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        Wrong.apply(w).sum().backward()
    assert "aten::mm(f32[2,3], f32[2,3])" in caught.value.__notes__[0]
    (w * 3).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[3.0] * 3] * 2


def test_what_only_a_meta_kernel_refuses_is_computed() -> None:
    # PyTorch's meta kernel has no say over what its CPU kernel accepts: an odd dtype of the boundaries.
    edges, x = torch.tensor([1, 2]), torch.tensor([0.5, 1.5])
    assert torch.bucketize(x.to("xla"), edges.to("xla")).tolist() == torch.bucketize(x, edges).tolist()


def test_a_rehearsal_draws_no_random_numbers() -> None:
    state = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="cannot sample n_sample <= 0"):
        torch.multinomial(torch.ones(3, device="xla"), 0)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_call_too_large_to_rehearse_still_fails() -> None:
    x = torch.empty(1 << 30, device="xla")
    with pytest.raises(RuntimeError):
        x + torch.empty((1 << 30) - 1, device="xla")
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
        torch.add(x, 1.5, out=torch.empty(1 << 30, dtype=torch.int64, device="xla"))


@pytest.mark.slow  # four programs of linear algebra
def test_linear_algebra_that_fails_is_told_at_the_call() -> None:
    singular = torch.zeros(2, 2, device="xla")
    for call, says in [
        (torch.linalg.inv, r"linalg.inv: The diagonal element 1 is zero"),
        (torch.linalg.cholesky, r"linalg.cholesky: The factorization could not be completed"),
        (lambda a: torch.linalg.solve(a, a), r"linalg.solve: The solver failed because the input matrix is singular"),
    ]:
        with pytest.raises(torch.linalg.LinAlgError, match=says):
            call(singular)
    info = torch.linalg.inv_ex(singular).info  # asks for nothing, so nothing is read
    assert info.item() == 1
    xr.sync()
