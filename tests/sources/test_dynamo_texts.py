"""Dynamo's texts taken apart: guards that failed, graph breaks, metrics. Pure functions of the text."""

from __future__ import annotations

import json
import linecache
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.sources.dynamo import hints
from xlaprof.sources.dynamo.breaks import Break, parse_break, user_name
from xlaprof.sources.dynamo.guards import parse_reason
from xlaprof.sources.dynamo.record import Broke, Compiled, Part, Recompiles, graph_hash, parse

USER_STACK = """
User stack trace:
  File "/home/me/model.py", line 46, in forward
    return self.drop(self.l(x))*self.k
  File "/v/site-packages/torch/nn/modules/dropout.py", line 73, in forward
    return F.dropout(input, self.p, self.training, self.inplace)"""


@pytest.mark.parametrize(
    ("text", "kind", "subject", "old", "new"),
    [
        ("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5", "shape", "x", "4", "5"),
        ("0/0: tensor 'x' stride mismatch at index 1. expected 1, actual 4", "stride", "x", "1", "4"),
        ("0/2: tensor 'x' rank mismatch. expected 2, actual 3", "rank", "x", "2", "3"),
        ("0/4: tensor 'x' dtype mismatch. expected Double, actual Half", "dtype", "x", "float64", "float16"),
        (
            "0/3: tensor 'x' requires_grad mismatch. expected requires_grad=0",
            "requires_grad", "x", "False", "True",
        ),
        (
            "0/5: tensor 'self.__dict__['_modules']['l']._parameters['bias']' size mismatch at index 0. expected 3, "
            "actual 5. Guard failed on a parameter, consider using force_parameter_static_shapes = False",
            "shape", "self.l.bias", "3", "5",
        ),
        (
            "0/4: tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), "
            "actual DispatchKeySet(CPU)",
            "dispatch", "x", "DispatchKeySet(CPU, AutogradCPU)", "DispatchKeySet(CPU)",
        ),
        ("0/1: 2 <= x.size()[0]  # return x * k  # m.py:3 in g (user code", "size bound", "x", "2 <= x.size()[0]", ""),
        ("0/1: (x.size()[1] % 2) == 0  # f  # m.py:3 in g", "size bound", "x", "(x.size()[1] % 2) == 0", ""),
        ("0/0: k == 2      # return x * k  # m.py:3 in g", "value", "k", "2", ""),
        ("0/0: mode == 'train'     # if mode  # m.py:3 in g", "value", "mode", "'train'", ""),
        ("0/0: flag is None  # if flag", "value", "flag", "None", ""),
        ("0/0: G['G'] == 3    # return x * G", "value", "G", "3", ""),
        ("0/0: self.param_groups[0]['lr'] == 0.00097", "value", "self.param_groups[0]['lr']", "0.00097", ""),
        ("0/0: len(l) == 2     # for v in l", "length", "l", "2", ""),
        ("0/0: len(self.state[self.x]) != 0", "length", "self.state[self.x]", "not empty", ""),
        ("0/1: len(self._modules['floors']._modules) != 1  # f", "length", "self.floors", "!= 1", ""),
        ("0/3: not self.hist      # len(self.hist)", "length", "self.hist", "0", ""),
        ("0/0: ___check_type_id(flag, 1404), type=<class 'list'>  # f", "type", "flag", "list", ""),
        ("0/0: ___check_obj_id(e, 1404), type=<class '__main__.E'>  # f", "object", "e", "E", ""),
        (
            "0/0: expected type of 'x' to be a tensor type, ' but found <class 'torch.nn.parameter.Parameter'>",
            "type", "x", "Tensor", "Parameter",
        ),
        ("0/0: ___dict_contains('a', d)   # if 'a' in d", "keys", "d['a']", "present", "absent"),
        ("0/0: hasattr(L['x'], '_dynamo_x') == False", "attribute", "x._dynamo_x", "not set", "set"),
        ("0/2: self.__dict__['_modules']['drop'].training == True    # r", "training", "self.drop", "True", ""),
        ("0/0: GLOBAL_STATE changed: grad_mode ", "mode", "grad_mode", "", ""),
        ("0/0: L['ids'] is L['mask']", "aliasing", "ids, mask", "the same tensor", "different tensors"),
        ('0/0: Duplicate tensors found: ["x", "y"]', "aliasing", "x, y", "different tensors", "the same tensor"),
        ("1/0: ___stack0 == 2.4506163597106934   # return x*v", "value", "the value that was read", "2.4506164", ""),
        ("0/0: Cache line invalidated because L['self'] got deallocated", "freed", "self", "alive", "freed"),
        ("0/0: something nobody has seen", "guard", "", "", ""),
    ],
)  # fmt: skip
def test_guards_say_what_they_expected(text: str, kind: str, subject: str, old: str, new: str) -> None:
    guard = parse_reason(text).guard
    assert (guard.kind, guard.subject, guard.old, guard.new) == (kind, subject, old, new)


def test_a_guard_names_its_line_and_the_version_it_belongs_to() -> None:
    reason = parse_reason("0/2: self.__dict__['_modules']['drop'].training == True  # r" + USER_STACK)
    assert reason.against == "0/2"
    assert [(frame.file, frame.line) for frame in reason.guard.frames] == [
        ("/v/site-packages/torch/nn/modules/dropout.py", 73),
        ("/home/me/model.py", 46),
    ]
    own = "0/1: bids[2] == 0.86  # (_dynamo/output_graph.py:3375 in remove_tensorify_specialized_graphargs)"
    assert parse_reason(own).guard.frames == ()  # PyTorch's own line
    both = "0/1: 8 <= x.size()[0]  # me/net.py:7 in f (_dynamo/guards.py:12 in g)"
    assert [(frame.file, frame.line) for frame in parse_reason(both).guard.frames] == [("me/net.py", 7)]
    short = parse_reason("!0/1/0: k == 2     # return x * k  # me/model.py:3 in g")
    assert short.against == "!0/1/0"
    assert [(frame.file, frame.line, frame.func) for frame in short.guard.frames] == [("me/model.py", 3, "g")]


def test_pytorchs_hint_stays_with_the_guard() -> None:
    guard = parse_reason("0/0: self.k == 2   # r  # m.py:4 in f (HINT: integer attributes are static.)").guard
    assert guard.hint == "integer attributes are static."


PRINT = """Graph break in user code at /home/me/model.py:4
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)
  Hint: Avoid calling builtin `print` with argument types ['str']. Consider using an equivalent alternative.
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False

 For more details about this graph break, please visit: https://meta-pytorch.github.io/site/gb/gb0059.html

User code traceback:
  File "/home/me/train.py", line 10, in <module>
    f(torch.randn(10), torch.randn(10).abs())
  File "/home/me/model.py", line 4, in torch_dynamo_resume_in_toy_at_3
    print("wind")

Traceback (most recent call last):
  File "/v/site-packages/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
"""


def test_a_graph_break_is_taken_apart() -> None:
    found = parse_break(PRINT)
    assert (found.gb, found.title, found.skipped) == ("GB0059", "Failed to trace builtin operator", False)
    assert found.explanation.startswith("Dynamo does not know how to trace builtin operator `print`")
    assert len(found.hints) == 2
    frames = [(frame.file, frame.line, frame.func) for frame in found.user_frames()]
    assert frames == [("/home/me/model.py", 4, "toy"), ("/home/me/train.py", 10, "<module>")]


def test_a_break_in_a_library_is_the_line_of_the_user_who_calls_it() -> None:
    inside = '    print("wind")\n  File "/v/site-packages/transformers/cache.py", line 7, in update\n    x.item()\n'
    found = parse_break(PRINT.replace('    print("wind")\n', inside))
    assert found.in_library
    assert found.user_frames()[0].line == 4


def test_what_skips_the_whole_function_is_the_first_break() -> None:
    text = PRINT.replace(
        "Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):",
        "Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
        "Graph break encountered:",
    ).replace(
        "\nUser code traceback:",
        "\n*** While handling this graph break, another graph break occurred: ***\n\ngraph break in loop\n"
        "  Explanation: none.\n\n visit: https://meta-pytorch.github.io/site/gb/gb7000.html\n\nUser code traceback:",
    )
    found = parse_break(text)
    assert (found.gb, found.title, found.skipped) == ("GB0059", "Failed to trace builtin operator", True)


def test_reasons_are_plain_and_hints_are_of_use() -> None:
    reason, hint = hints.explain(parse_break(PRINT))
    assert "print" in reason
    assert not reason.endswith(".")
    assert hint == "Remove the print from the compiled function, or print after it returns."
    unknown = parse_break(PRINT.replace("gb0059", "gb9999"))
    assert hints.explain(unknown)[0].startswith("Dynamo does not know how to trace builtin operator `print`")
    assert hints.hint(unknown) == "", "both of PyTorch's hints say nothing about this program"
    useful = parse_break(
        PRINT.replace("gb0059", "gb9999").replace("Please report an issue to PyTorch", "Use torch.sin")
    )
    assert hints.hint(useful) == "Use torch.sin."


def test_a_schedulers_wrapper_of_a_step_is_by_design() -> None:
    marked = PRINT.replace("gb0059", "gb0007")
    wrapped = parse_break(
        re.sub("Explanation: .*", "Explanation: `Adam.step` in file `/v/torch/optim/lr_scheduler.py`", marked)
    )
    own = parse_break(re.sub("Explanation: .*", "Explanation: `step` in file `/home/me/steps.py`", marked))
    assert (hints.by_design(wrapped), hints.by_design(own)) == (True, False)


def test_breaks_nobody_would_mend_are_by_design() -> None:
    backward = parse_break(PRINT.replace("gb0059", "gb0123"))
    assert hints.by_design(backward)
    asked_for = parse_break(PRINT.replace("gb0059", "gb0025"))
    assert not hints.by_design(asked_for), "the user's own torch._dynamo.graph_break()"
    frame = '    print("wind")\n  File "/v/site-packages/torch/optim/optimizer.py", line 79, in _use_grad\n'
    assert hints.by_design(parse_break(PRINT.replace("gb0059", "gb0025").replace('    print("wind")\n', frame)))


TORCH = "/v/site-packages/torch"
WRAPPED = [
    f'  File "{TORCH}/nn/modules/module.py", line 1789, in _call_impl\n    return forward_call(*args, **kwargs)\n',
    f'  File "{TORCH}/nn/parallel/distributed.py", line 1714, in _run_ddp_forward\n    with self._inside():\n',
    '  File "/usr/lib/python3.11/contextlib.py", line 301, in helper\n    return _GeneratorContextManager(func)\n',
    f'  File "{TORCH}/_dynamo/polyfills/__init__.py", line 513, in instantiate\n    obj.__init__(*args)\n',
    '  File "/usr/lib/python3.11/contextlib.py", line 105, in __init__\n    self.gen = func(*args)\n',
]


def test_what_pytorch_wraps_around_a_model_of_several_ranks_breaks_graphs_by_design() -> None:
    own = '    print("wind")\n'
    ddp = parse_break(PRINT.replace(own, own + "".join(WRAPPED)))
    assert hints.by_design(ddp), "nobody can mend DistributedDataParallel in a program"
    assert hints.explain(ddp) == (
        "DistributedDataParallel runs what it has to do around the model (its buckets of gradients) outside of graphs",
        "",
    )
    hook = f'  File "{TORCH}/distributed/fsdp/_fully_shard/_fsdp_common.py", line 30, in wrapper\n    return disable(\n'
    fsdp = parse_break(PRINT.replace(own, own + hook))
    assert hints.by_design(fsdp)
    assert hints.explain(fsdp)[0].startswith("FSDP runs its hooks")
    for inner in (f"{TORCH}/nn/functional.py", "/v/site-packages/transformers/cache.py", "/home/me/model.py"):
        called = f'  File "{inner}", line 7, in update\n    x.item()\n'
        inside = parse_break(PRINT.replace(own, own + "".join(WRAPPED[:2]) + WRAPPED[0] + called))
        assert not hints.by_design(inside), "it lies in the model, whatever that is wrapped in"


def test_a_graphs_hash_is_the_same_on_all_ranks_that_compile_the_same() -> None:
    graph = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8, 4][4, 1]cuda:0"):
        l_x_ = L_x_

        # File: /home/ada/train.py:12 in forward, code: return x * 2 + torch.ones(3, device=x.device)
        mul: "f32[8, 4][4, 1]cuda:0" = l_x_ * 2;  l_x_ = None
        ones: "f32[3][1]cuda:0" = torch.ones(3, device = device(type='cuda', index=0))
"""
    there = graph.replace("cuda:0", "cuda:13").replace("index=0", "index=13").replace("/home/ada", "/mnt/node7")
    assert graph_hash(there) == graph_hash(graph)
    for old, new in (("* 2;", "* 3;"), ("[8, 4]", "[5, 4]"), ("cuda:0", "cpu"), ("ones(", "zeros(")):
        assert graph_hash(graph.replace(old, new)) != graph_hash(graph)


def test_the_parts_that_a_graph_is_split_into_for_the_buckets_of_gradients_are_counted() -> None:
    ids = {"frame_id": 4, "frame_compile_id": 0}
    assert parse({"optimize_ddp_split_graph": {}, **ids}, "class GraphModule") == Part("4/0", whole=True)
    assert parse({"optimize_ddp_split_child": {"name": "submod_2"}, **ids}, "") == Part("4/0", whole=False)
    assert parse({"optimize_ddp_split_child": {"name": "inner"}, **ids}, "") is None
    assert parse({"optimize_ddp_split_child": 7, **ids}, "") is None


def test_a_disabled_function_is_by_design_where_nothing_is_computed_with_it(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("def toy(x):\n    x = x + 1\n    h = smooth(x)\n    remember(x)\n    return h\n")

    def disabled(line: int) -> Break:
        text = PRINT.replace("gb0059", "gb0098").replace('"/home/me/model.py", line 4', f'"{model}", line {line}')
        return parse_break(text)

    assert hints.by_design(disabled(4)), "kept out of the graph for what it does"
    assert not hints.by_design(disabled(3)), "its result is computed with: the graph ends there and begins anew"
    model.unlink()
    linecache.clearcache()
    assert not hints.by_design(disabled(4)), "the source is not at hand"


METADATA = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}


def test_several_reasons_are_a_list_and_one_is_itself() -> None:
    metadata = {"artifact": {"name": "recompile_reasons", "encoding": "json"}, **METADATA}
    one = parse(metadata, "0/0: k == 2")
    assert isinstance(one, Recompiles)
    assert (one.compile, [reason.against for reason in one.reasons]) == ("0/1", ["0/0"])
    two = parse(metadata, "[\n" + ",\n".join(json.dumps(text) for text in ("0/1: k == 3", "0/0: k == 2")) + "\n]")
    assert isinstance(two, Recompiles)
    assert [reason.against for reason in two.reasons] == ["0/1", "0/0"]


def test_metrics_tell_what_was_compiled_and_which_limit_was_hit() -> None:
    metrics = {
        "compile_id": "1/8",
        "co_name": "torch_dynamo_resume_in_toy_at_4",
        "co_filename": "/home/me/model.py",
        "co_firstlineno": 4,
        "graph_op_count": 3,
        "duration_us": 2500,
        "start_time_us": 1_700_000_000_000_000,
        "has_guarded_code": False,
        "fail_type": "Unsupported",
        "fail_reason": "Dynamo recompile limit exceeded\n  Explanation: Dynamo attempted to recompile the code object "
        "too many times, exceeding the recompile_limit cache size limit (currently set to 8). Excessive",
    }
    done = parse({"compilation_metrics": metrics, **METADATA}, None)
    assert isinstance(done, Compiled)
    assert (done.func, done.resumed) == ("toy", 4)
    assert (done.event.ops, done.event.dur, done.event.compiled) == (3, 2_500_000, False)
    assert (done.limit, done.limit_value) == ("recompile_limit", 8)
    backward = parse({"bwd_compilation_metrics": {"compile_id": "0/0"}}, None)
    assert isinstance(backward, Compiled)
    assert backward.event.backward


def test_what_is_left_of_a_function_bears_its_name() -> None:
    assert user_name("forward") == ("forward", 0)
    assert user_name("torch_dynamo_resume_in_forward_at_21") == ("forward", 21)
    assert user_name("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_5_1") == ("f", 5)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from(
    [
        *("compilation_metrics", "bwd_compilation_metrics", "artifact", "frame_id", "frame_compile_id", "compile_id"),
        *("name", "co_name", "duration_us", "start_time_us", "fail_reason", "graph_op_count", "has_guarded_code"),
    ]
)
_tables = st.dictionaries(_names, _values, max_size=5)


@given(
    st.dictionaries(_names, _values | _tables, max_size=5),
    st.none() | st.text(max_size=60) | st.sampled_from([PRINT[:n] for n in range(0, len(PRINT), 97)]),
    st.sampled_from(["dynamo_graph_break_reason", "recompile_reasons", "other"]),
)
def test_nothing_in_a_record_is_trusted(metadata: dict[str, object], payload: object, name: str) -> None:
    for reported in (metadata, {"artifact": {"name": name}, **metadata}):
        found = parse(reported, payload)
        assert found is None or isinstance(found, Broke | Recompiles | Compiled)
