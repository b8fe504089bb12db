"""One function over several calls, by torch.compile and by JAX: what is said of it, and that nothing is disturbed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import processes
import pytest
import torch
from torch._dynamo import pgo
from torch._dynamo.eval_frame import _debug_get_cache_entry_list as entries

import xlaprof


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def inner(x: Any) -> Any:
    torch._dynamo.graph_break()
    return x * 2


def score(x: Any, k: int = 2) -> Any:
    y = inner(x.sin())
    return (y + k).sum()


def test_graphs_breaks_and_reasons_are_told_call_by_call() -> None:
    found = xlaprof.explain(
        score, (torch.ones(4),), (torch.ones(4),), (torch.ones(4, 2),), {"x": torch.ones(4), "k": 3}, backend="eager"
    )
    assert found.name == "score"
    first, same, rank, keyword = found.calls
    assert first.graphs >= 2
    assert any("break at" in line and "test_explaining.py" in line for line in first.lines)
    assert (same.graphs, same.compile_s, same.lines) == (0, 0.0, ())
    assert any(line.startswith("compiled again (score)") and "x from f32[4] to f32[4,2]" in line for line in rank.lines)
    assert any("k from 2 to 3" in line for line in keyword.lines)
    text = str(found)
    assert "call 2: " in text
    assert "nothing compiled" in text
    assert "unaccounted" in text
    assert "guards" in text
    assert "<pre>" in found._repr_html_()
    assert "<script" not in found._repr_html_()


def test_what_the_program_has_compiled_is_as_it_was() -> None:
    theirs = torch.compile(score, backend="eager")
    theirs(torch.ones(4)), theirs(torch.ones(5))
    codes = [score.__code__, inner.__code__]

    def state() -> Any:
        kept = [[str(one.compile_id) for one in entries(code)] for code in codes]
        return kept, str(pgo._CODE_STATE), list(torch._dynamo.callback.callback_handler.start_callbacks)

    before = copy.deepcopy(state())
    xlaprof.explain(theirs, torch.ones(7), torch.ones(9), (torch.ones(3, 3),), backend="aot_eager")
    after = state()
    assert [set(a) - set(b) for a, b in zip(before[0], after[0], strict=True)] == [set(), set()]
    assert after[1:] == before[1:]
    with xlaprof.frozen(on_recompile="raise"):
        for rows in (4, 5):
            assert float(theirs(torch.ones(rows))) == pytest.approx(float(score(torch.ones(rows))))
    drops = torch.nn.Dropout(0.5)
    random = torch.random.get_rng_state()
    xlaprof.explain(drops, torch.ones(64), backend="eager")
    assert torch.equal(torch.random.get_rng_state(), random)
    drops(torch.ones(64))
    assert not torch.equal(torch.random.get_rng_state(), random)


def test_a_module_and_a_method_and_a_call_that_raises() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    found = xlaprof.explain(model, torch.ones(2, 3), torch.ones(2, 5), torch.ones(2, 3), backend="eager")
    assert found.name == "Sequential"
    assert found.calls[0].graphs == 1
    assert found.calls[1].error.startswith("raised ")
    assert len(found.calls) == 2  # the last


def test_functions_of_jax_are_explained_by_jax() -> None:
    step = jax.jit(lambda batch, n: batch["x"].sum() * n, static_argnums=1)
    ones = {"x": jnp.ones(4)}
    kept = float(step(ones, 2))
    size = step._cache_size()
    found = xlaprof.explain(step, (ones, 2), (ones, 2), ({"x": jnp.ones(6)}, 2), (ones, 3))
    assert found.by == "jax.jit"
    first, same, shape, static = found.calls
    assert first.graphs >= 1
    assert same.graphs == 0
    assert any("shape of batch['x'] from f32[4] to f32[6]" in line for line in shape.lines)
    assert any("static of n from 2 to 3" in line for line in static.lines)
    assert "lowering" in str(found)
    assert step._cache_size() == size
    assert float(step(ones, 2)) == kept
    plain = xlaprof.explain(lambda x: x * 2, jnp.ones(3))
    assert plain.by == "jax.jit"


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(xlaprof.RecordingError, match="needs the arguments"):
        xlaprof.explain(score)
    with pytest.raises(xlaprof.RecordingError, match="takes a function: int is no function"):
        xlaprof.explain(3, (1,))
    with xlaprof.record(tmp_path / "run.log"), pytest.raises(xlaprof.RecordingError, match="stop the recording"):
        xlaprof.explain(score, torch.ones(3))


def test_the_page_runs(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "explain.md").read_text("utf-8")
    (tmp_path / "score.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    done = processes.run("score.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "score by torch.compile(backend='eager'), 3 calls" in lines
    assert any(line.startswith("  break at score.py:7: ") for line in lines)
    assert any(line.startswith("call 2: ") and line.endswith("nothing compiled") for line in lines)
    assert "  compiled again (score): x from f32[4] to f32[4,2]" in lines


def test_the_example_names_its_break_and_its_reasons() -> None:
    done = processes.run("examples/explain.py", cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    assert "  break at explain.py:13: the branch depends on the value of a tensor." in done.stdout
    assert "  compiled again (normalize): batch from float32 to float64" in done.stdout
    assert "  compiled again (normalize): scale from 1.0 to 2.0" in done.stdout
