"""What is said of the code that inductor generated: which graphs, which kernels, and what is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from xlaprof.events import Conversion, GeneratedCode, Kernel
from xlaprof.pages.json import text, to_json

from .compiling import Compiling


class Generating(Compiling):
    """Functions that are compiled, with the code of their graphs."""

    def code_of(self, name: str, *kernels: Kernel, library: dict[str, int] | None = None, **fields: Any) -> None:
        self.compile(name, **{key: value for key, value in fields.items() if key in ("resumed", "backward")})
        code = {"stack": self.call, "code": self.code, "func": self.func, **fields}
        launches, library = sum(kernel.calls for kernel in kernels), library or {}
        self.story.emit(
            GeneratedCode(
                self.story.now,
                name,
                launches=launches,
                calls=sum(library.values()),
                kernels=list(kernels),
                library=library,
                **code,
            )
        )

    def runs(self) -> tuple[str, ...]:
        (function,) = self.story.run().report().torch_compile.functions
        return function.runs


def fused(*ops: str, calls: int = 1, number: int = 0) -> Kernel:
    return Kernel(f"cpp_fused_{'_'.join(sorted(ops))}_{number}", list(ops), calls)


@pytest.fixture
def told() -> Generating:
    return Generating()


def test_a_graph_of_one_kernel(told: Generating) -> None:
    told.code_of("0/0", fused("sin", "cos"))
    assert told.runs() == ("runs 1 kernel (sin and cos in one)",)


def test_layers_run_the_same_kernel_each(told: Generating) -> None:
    told.code_of(
        "0/0", fused("sin", "cos", "neg"), fused("_softmax", "mul", calls=12), library={"addmm": 48, "bmm": 24}
    )
    assert told.runs() == (
        "runs 13 kernels (softmax and mul in each of 12; sin, cos and neg in one) and 72 library calls (48 x addmm and "
        "24 x bmm)",
    )


def test_what_a_library_is_called_for_runs_in_no_kernel(told: Generating) -> None:
    """The name of a kernel that casts a bias, and adds it, has the convolution in it, too."""
    told.code_of("0/0", fused("_to_copy", "convolution"), fused("convolution", "relu"), library={"convolution": 1})
    assert told.runs() == ("runs 2 kernels and 1 library call (convolution)",)


def test_a_view_is_no_part_of_what_is_fused(told: Generating) -> None:
    told.code_of("0/0", fused("view", "permute", "sin"), fused("_to_copy", "view"))
    assert told.runs() == ("runs 2 kernels",)


def test_the_rest_of_many_kernels_is_counted(told: Generating) -> None:
    ops = ["sin", "cos", "tan", "exp", "log", "neg", "abs"]
    told.code_of("0/0", *(fused(*ops[:n], number=n) for n in range(2, 8)))
    (text,) = told.runs()
    assert text == (
        "runs 6 kernels (sin, cos, tan, exp, log, neg and 1 more in one; sin, cos, tan, exp, log and neg in one; sin, "
        "cos, tan, exp and log in one; 3 more fuse others)"
    )


def test_copies_between_devices_are_counted(told: Generating) -> None:
    told.code_of("0/0", fused("sin"), copies=2)
    assert told.runs() == ("runs 1 kernel and 2 copies between devices",)


def test_the_backward_pass_has_a_sentence_of_its_own(told: Generating) -> None:
    told.code_of("0/0", fused("sin"))
    told.code_of("0/0", fused("cos", "mul"), backward=True)
    assert told.runs() == ("runs 1 kernel", "its backward pass runs 1 kernel (cos and mul in one)")


def test_the_graphs_beside_a_break_count_together_and_of_their_versions_the_last(told: Generating) -> None:
    behind = told.story.line(12, "print(x)", func="forward")
    told.code_of("0/0", fused("sin", "cos"))
    told.code_of("1/0", fused("exp"), fused("log"), resumed=behind)
    told.code_of("0/1", fused("sin", "cos", "neg"))
    assert told.runs() == ("runs 3 kernels (sin, cos and neg in one)",)
    (function,) = told.story.run().report().torch_compile.functions
    assert [(one.compile, one.line, one.launches) for one in function.code] == [
        ("0/0", 0, 1),
        ("1/0", 12, 2),
        ("0/1", 0, 1),
    ]


def test_a_graph_that_is_split_for_the_buckets_of_gradients_has_several_texts(told: Generating) -> None:
    told.code_of("0/0", fused("sin", "cos"))
    told.code_of("0/0", fused("exp"))
    assert told.runs() == ("runs 2 kernels (sin and cos in one)",)


def test_without_inductors_code_nothing_is_said(told: Generating) -> None:
    told.compile("0/0")
    assert told.runs() == ()


def test_two_recordings_are_one_run(told: Generating) -> None:
    other = Generating()
    other.story.text("something that moves the ids")
    other.func = other.story.text("backward")
    other.code = other.story.line(70, "def backward(x):", func="backward")
    other.code_of("0/0", fused("exp", "log"))
    told.code_of("0/0", fused("sin", "cos"))
    run = told.story.run()
    run.merge(other.story.run())
    functions = {one.name: one.runs for one in run.report().torch_compile.functions}
    assert functions == {
        "forward": ("runs 1 kernel (sin and cos in one)",),
        "backward": ("runs 1 kernel (exp and log in one)",),
    }


def test_all_of_it_is_in_the_json(told: Generating) -> None:
    told.code_of("0/0", fused("sin", "cos", calls=2), library={"mm": 3})
    (function,) = json.loads(text(to_json(told.story.run().report())))["torch_compile"]["functions"]
    assert function["code"] == [
        {
            "compile": "0/0",
            "backward": False,
            "line": 0,
            "launches": 2,
            "calls": 3,
            "copies": 0,
            "kernels": [{"name": "cpp_fused_cos_sin_0", "ops": ["sin", "cos"], "calls": 2}],
            "library": [["mm", 3]],
        }
    ]


def test_conversions_of_two_recordings_keep_their_lines(told: Generating) -> None:
    other = Generating()
    other.story.text("something that moves the ids")
    line = other.story.line(61, "y = x.cpu().numpy()", func="backward")
    told.compile("0/0", conversions=[Conversion("upcast", "float", "f32", "bf16", told.code)])
    other.compile("0/0", conversions=[Conversion("copy", "cpu", "cpu", "cuda", line, numpy=True)])
    run = told.story.run()
    run.merge(other.story.run())
    (function,) = run.report().torch_compile.functions
    assert [(one.kind, one.place.line) for one in function.conversions] == [("upcast", 10), ("copy", 61)]
    assert function.runs == (
        "upcasts: bf16 to f32 in float at train.py:10",
        "copies between devices: cuda to cpu at train.py:61 for NumPy",
    )
