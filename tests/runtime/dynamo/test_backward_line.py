"""A backward graph is compiled by autograd's thread for its device: it is told for the line that waits for it."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.sources.observed import line_of, observing
from xlaprof.events import DynamoCompile


def test_a_backward_graph_that_another_thread_compiles_has_the_line_of_backward(tmp_path: Path) -> None:
    x = torch.ones(3, device="xla", requires_grad=True)
    torch._dynamo.reset()
    with observing(tmp_path / "run.log") as found:
        y = torch.compile(lambda x: (x * 2).sin().sum(), backend="aot_eager")(x)
        y.backward()  # here
    torch._dynamo.reset()
    [done] = found
    forward, backward = done.of(DynamoCompile)
    assert (forward.backward, backward.backward) == (False, True)
    assert forward.tid != backward.tid
    here = line_of(test_a_backward_graph_that_another_thread_compiles_has_the_line_of_backward, "y.backward()  # here")
    assert done.line(backward.stack) == here
