"""CUDA graphs of torch.compile, as PyTorch's own code tells of them where there is no GPU.

Its functions make the texts, its scheduler says what it leaves out, and its manager begins a recording, as far as it
comes without a GPU.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._dynamo.callback import callback_handler

from tests.sources.observed import line_of, observing
from xlaprof.events import Compiling, CudaGraph, NoCudaGraph
from xlaprof.sources.dynamo import cuda_graphs

with warnings.catch_warnings():  # what inductor imports is deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch._inductor import cudagraph_trees, cudagraph_utils
    from torch._inductor.cudagraph_utils import FunctionID, PlaceholderInfo, WrappedFunction

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
TRACE = f'  File "{__file__}", line 12, in step\n    cache[:, at] = x\n'


@pytest.fixture(autouse=True)
def fresh(fresh_dynamo: None) -> Iterator[None]:
    yield
    logging.getLogger(cuda_graphs.LOGGER).handlers.clear()


def mutated() -> str:
    return cudagraph_utils.get_mutation_stack_trace([PlaceholderInfo("arg0_1", None, [], TRACE)], {0})


def node(target: Any = torch.ops.aten.nonzero.default) -> torch.fx.Node:
    graph = torch.fx.Graph()
    made = graph.create_node("call_function", target, (), name="device_put")
    graph.create_node("call_function", torch.ops.aten.cos.default, (made,)).meta["stack_trace"] = TRACE
    return made


# -- PyTorch's sentences


def test_an_input_that_is_written_and_its_line() -> None:
    left = cuda_graphs.parsed(mutated())
    assert left is not None
    assert (left.kind, left.reason) == ("mutation", "mutated inputs (1 instances)")
    assert [(frame.line, frame.func) for frame in left.frames] == [(12, "step")]


@pytest.mark.parametrize(("device", "kind", "lines"), [("cpu", "copy", [12]), ("cuda:1", "devices", [])])
def test_a_copy_and_several_devices(device: str, kind: str, lines: list[int]) -> None:
    text = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes(
        {torch.device(device): node(), torch.device("cuda:0"): node()}
    )
    left = cuda_graphs.parsed(cudagraph_utils.format_default_skip_message(str(text)))
    assert left is not None
    assert (left.kind, [frame.line for frame in left.frames]) == (kind, lines)


SKIP = "skipping cudagraphs due to"
SYMBOLIC = "graph with symbolic shapes inputs and config.triton.cudagraph_skip_dynamic_graphs=True."
LIMIT = "skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on cudagraph node 0 due to x."


@pytest.mark.parametrize(
    ("text", "kind", "operator"),
    [
        (
            f"{SKIP} disabling cudagraphs due to incompatible op aten.nonzero.default Found from x",
            "size",
            "aten.nonzero",
        ),
        ("disabling cudagraphs due to incompatible op mine.sort.default", "operator", "mine.sort"),
        (f"{SKIP} {SYMBOLIC}", "dynamic", ""),
        (LIMIT, "limit", ""),
        ("disabling cudagraphs due to override_cudagraphs annotation", "asked", ""),
        (f"{SKIP} the moon", "other", ""),
    ],
)
def test_other_reasons(text: str, kind: str, operator: str) -> None:
    left = cuda_graphs.parsed(text)
    assert left is not None
    assert (left.kind, left.operator, left.ops, left.all) == (kind, operator, 0, 0)


def test_a_warning_of_many_sizes_is_no_reason() -> None:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(cuda_graphs.LOGGER).addHandler(handler)
    cudagraph_utils.maybe_warning_due_to_dynamic_shape({(n,): print for n in range(9)}, (9,))
    assert len(heard) == 1
    assert cuda_graphs.parsed(heard[0]) is None


# -- while a program runs


def skipping(graph: Any, inputs: Any) -> Any:
    """A backend that does what inductor does where it runs a graph without."""
    cudagraph_utils.log_cudagraph_skip_and_bump_counter(mutated())
    return graph.forward


def test_what_inductor_says_is_an_event_of_the_function(tmp_path: Path) -> None:
    def step(x: Any) -> Any:
        return x + 1

    with observing(tmp_path / "run.log") as found:
        torch.compile(step, backend=skipping)(torch.ones(3))
    [done] = found
    (event,) = done.of(NoCudaGraph)
    assert (event.compile, event.kind, event.backward) == ("0/0", "mutation", False)
    assert done.run.names.text(event.func).endswith("step")
    assert done.line(event.line) == 12
    assert done.line(event.stack) == line_of(
        test_what_inductor_says_is_an_event_of_the_function, "torch.compile(step, backend=skipping)"
    )
    (finding,) = done.findings("cuda_graph")
    assert "an argument is written in place" in finding.cause


def test_the_logger_is_left_as_it_was(tmp_path: Path) -> None:
    logger = logging.getLogger(cuda_graphs.LOGGER)
    before = list(logger.handlers), logger.level, logger.propagate
    with observing(tmp_path / "run.log"):
        torch.compile(lambda x: x + 1, backend=skipping)(torch.ones(3))
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def test_what_the_scheduler_leaves_out_has_its_line_and_reason() -> None:
    """Of a graph on the CPU inductor leaves out everything: what it says of each operation is what it says on a GPU."""
    seen: list[cuda_graphs.Left] = []

    class Reading(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "inductor_output_code" in getattr(record, "metadata", {}):
                seen.extend(cuda_graphs.left_out())

    def product(x: Any) -> Any:
        y = x @ x
        return y @ x

    logger, handler = logging.getLogger("torch.__trace"), Reading()
    logger.addHandler(handler)
    try:
        whole = torch._inductor.config.patch({"triton.cudagraphs": True, "fx_graph_cache": False})
        with whole, torch._functorch.config.patch(enable_autograd_cache=False), torch.no_grad():
            torch.compile(product, backend="inductor")(torch.ones(4, 4))
    finally:
        logger.removeHandler(handler)
    assert [(one.kind, one.ops, one.all) for one in seen] == [("cpu", 1, 2), ("cpu", 1, 2)]
    assert [one.frames[0].line for one in seen] == [line_of(product, "y = x @ x"), line_of(product, "return y @ x")]


def manager_of(function: WrappedFunction) -> Any:
    """PyTorch's manager of CUDA graphs, which needs a GPU only to make one."""
    manager: Any = object.__new__(cudagraph_trees.CUDAGraphTreeManager)
    manager.ids_to_funcs = {function.id: function}
    manager.id_to_mode = {function.id: cudagraph_trees.CompilationMode.BACKWARD}
    manager.id_to_compile_id = {function.id: "2/1"}
    manager.compile_id, manager.current_node, manager.graph_counter = "2/1", None, itertools.count()
    return manager


@pytest.mark.skipif(torch.cuda.is_available(), reason="a recording succeeds on a GPU")
def test_a_recording_tells_what_it_is_for_and_one_that_fails_is_none(tmp_path: Path) -> None:
    function = WrappedFunction(lambda inputs: inputs, [1], FunctionID(7), (), [], [])
    inputs = [10, torch.ones(4, 4), torch.ones(10, 64)]
    seen: list[Any] = []
    look = callback_handler.register_start_callback(lambda args: seen.append(cuda_graphs.recording()))
    with observing(tmp_path / "run.log") as found:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))  # the recording is at its place
        with pytest.raises((RuntimeError, AssertionError)):
            manager_of(function).record_function(inputs, function.id)
    callback_handler.remove_start_callback(look)
    assert seen[-1] == cuda_graphs.Recorded("2/1", True, "f32[10,64]", "", ())
    [done] = found
    assert done.of(CudaGraph) == []
    assert [one.phase for one in done.of(Compiling)] == ["", "Dynamo"]  # none for the recording: it compiles nothing
