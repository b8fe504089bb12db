"""What the code that inductor generates runs: of real compilations on the CPU, and of code in Triton's form."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import xlaprof
from tests.sources.observed import Observed, observing
from xlaprof.events import DynamoCompile, GeneratedCode, Kernel
from xlaprof.sources.dynamo.inductor import generated

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # what inductor imports is deprecated
FACTOR = 1 + random.random()  # a graph that inductor has in no cache


def score(x: Any, w: Any) -> Any:
    hidden = x.sin().cos() @ w
    return (hidden.exp() * FACTOR).sum()


class Told(NamedTuple):
    cold: Observed
    warm: Observed  # from inductor's cache
    counted: int  # kernels of the first, by inductor's own count
    explained: xlaprof.Explanation


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A function and its gradient, compiled twice: the second time inductor has it in its cache; and explained."""
    from torch._inductor import metrics

    folder = tmp_path_factory.mktemp("generated")
    done = []
    counted = 0
    for number in range(2):
        torch._dynamo.reset()
        metrics.reset()
        with observing(folder / f"{number}.log") as found:
            torch.compile(score)(torch.ones(4, 3, requires_grad=True), torch.ones(3, 4)).backward()
        done += found
        counted = counted or metrics.generated_kernel_count
    torch._dynamo.reset()
    explained = xlaprof.explain(score, (torch.ones(4, 3, requires_grad=True), torch.ones(3, 4)))
    torch._dynamo.reset()
    return Told(done[0], done[1], counted, explained)


def test_the_kernels_of_a_real_graph_and_what_each_fuses(told: Told) -> None:
    forward, backward = told.cold.of(GeneratedCode)
    assert (forward.backward, backward.backward) == (False, True)
    assert [sorted(kernel.ops) for kernel in forward.kernels] == [["cos", "sin"], ["exp", "mul", "sum"]]
    assert (forward.launches, forward.calls, forward.copies, forward.library) == (2, 1, 0, {"mm": 1})
    assert [{"exp", "mul"} <= set(kernel.ops) for kernel in backward.kernels] == [True, False]
    assert forward.launches + backward.launches == told.counted > 0


def test_code_that_comes_from_the_cache_is_told_alike(told: Told) -> None:
    assert not any(one.cached for one in told.cold.of(DynamoCompile))
    assert any(one.cached for one in told.warm.of(DynamoCompile))
    for cold, warm in zip(told.cold.of(GeneratedCode), told.warm.of(GeneratedCode), strict=True):
        assert [cold.kernels, cold.library, cold.backward, cold.compile] == [
            warm.kernels,
            warm.library,
            warm.backward,
            warm.compile,
        ]


def test_the_report_says_what_runs_in_one_kernel(told: Told) -> None:
    (function,) = told.cold.report.torch_compile.functions
    forward, backward = function.runs
    assert forward == "runs 2 kernels (exp, mul and sum in one; cos and sin in one) and 1 library call (mm)"
    assert backward.startswith("its backward pass runs 2 kernels (")
    assert [(one.compile, one.backward, one.launches) for one in function.code] == [("0/0", False, 2), ("0/0", True, 2)]
    assert function.code[0].library == (("mm", 1),)


def test_explain_says_it_of_each_call(told: Told) -> None:
    (call,) = told.explained.calls
    assert any("exp, mul and sum in one; cos and sin in one" in line for line in call.lines)
    assert told.explained.report.torch_compile.functions[0].code[0].launches == 2


# -- code for a GPU, in the form of PyTorch 2.11 to 2.13

KERNEL = """
# kernel path: /tmp/cache/{name}.py
# Topologically Sorted Source Nodes: [{nodes}], Original ATen: [{ops}]
# Source node to ATen node mapping:
#   a => a
# Graph fragment:
#   %a : Tensor "f32[8]" = call_function[target=torch.ops.aten.sin.default](args = (%x,), kwargs = {{}})
{name} = async_compile.triton('{name}', '''
import triton

@triton.jit
def {name}(in_ptr0, xnumel, XBLOCK : tl.constexpr):
    {name}.run(in_ptr0)
    extern_kernels.mm(in_ptr0)
''', device_str='cuda')
"""

CALL = """
async_compile.wait(globals())
del async_compile

class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
            buf0.copy_(arg0_1, False)
            # Topologically Sorted Source Nodes: [y], Original ATen: [aten.sin, aten.cos]
            stream0 = get_raw_stream(0)
            triton_poi_fused_cos_sin_0.run(buf0, 64, stream=stream0)
            triton_poi_fused_cos_sin_0.run(buf0, 64, stream=stream0)
            extern_kernels.mm(buf0, arg1_1, out=buf1)
            buf2 = extern_kernels.convolution(buf0, arg1_1, stride=(1, 1))
            buf3 = torch.ops.aten._scaled_dot_product_efficient_attention.default(buf2, buf2)
            buf4 = buf3[0]
            add_kernel_0.run(buf4, 64, 1, 1, 1, stream=stream0)
            torch.ops._c10d_functional.wait_tensor.default(buf4)
        return (buf4, )

def get_args():
    return [rand_strided((8, 8), (8, 1), device='cuda:0')]
"""

TRITON = (
    "# AOT ID: ['0_inference']\nasync_compile = AsyncCompile()\n"
    + KERNEL.format(name="triton_poi_fused_cos_sin_0", nodes="y", ops="aten.sin, aten.cos")
    + "add_kernel_0 = async_compile.triton('add_kernel', '''\ndef add_kernel(x):\n    pass\n''', device_str='cuda')\n"
    + CALL
)


def test_code_in_triton_names_its_operations_in_order() -> None:
    found = generated.read(TRITON, set())
    assert found is not None
    assert found.kernels == (Kernel("triton_poi_fused_cos_sin_0", ["sin", "cos"], 2), Kernel("add_kernel_0"))
    assert (found.launches, found.calls, found.copies, found.backward) == (3, 3, 1, False)
    assert found.library == {"mm": 1, "convolution": 1, "_scaled_dot_product_efficient_attention": 1}


def test_parts_that_are_recorded_as_cuda_graphs_are_parts_of_the_graph() -> None:
    parts = TRITON.replace("def call(self, args)", "def partition_0(args)").replace("inference", "backward")
    found = generated.read(parts, set())
    assert found is not None
    assert (found.launches, found.backward) == (3, True)


@pytest.mark.parametrize("text", ["", "cpp_wrapper_src = '''\nvoid inductor_entry_impl() {\n'''", "def main():\n  f()"])
def test_of_code_in_another_form_nothing_is_said(text: str) -> None:
    assert generated.read(text, set()) is None


# -- names of kernels

NAMES = [
    "_softmax",
    "_to_copy",
    "add",
    "cos",
    "gelu",
    "gelu_backward",
    "index",
    "index_put",
    "mul",
    "native_layer_norm",
]


@given(st.sets(st.sampled_from(NAMES), min_size=1))
def test_a_kernels_name_is_split_into_the_operations_that_it_was_made_of(ops: set[str]) -> None:
    name = f"cpp_fused_{'_'.join(sorted(ops))}_3"
    assert generated.operations(name, NAMES) == sorted(ops)


@given(st.lists(st.sampled_from(["index", "put", "index_put", "log", "softmax"]), min_size=1, unique=True))
def test_of_several_readings_the_shortest_is_taken(ops: list[str]) -> None:
    found = generated.operations(
        f"triton_per_fused_{'_'.join(sorted(ops))}_0", ["index", "put", "index_put", "log", "softmax"]
    )
    assert "_".join(found) == "_".join(sorted(ops))
    assert len(found) <= len(ops)


@given(st.text("ab_", min_size=1, max_size=12))
def test_a_name_with_an_unknown_part_has_no_operations(words: str) -> None:
    assume(not set(words.split("_")) <= {"a", ""})
    assert generated.operations(f"cpp_fused_{words}b_0", ["a"]) == []


def test_the_operators_of_a_process_are_those_that_it_has_looked_up() -> None:
    assert torch.ops.aten.sin
    assert "sin" in generated.KNOWN
    assert "an_operator_that_nobody_has" not in generated.KNOWN
