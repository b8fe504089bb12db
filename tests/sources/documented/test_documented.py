"""What PyTorch's documentation shows of ``torch.compile``: each program's mistakes are named, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.documented import breaks, recompilations, whole
from tests.sources.documented.truth import Example, score
from tests.sources.observed import observing

EXAMPLES = [
    one for module in (breaks, recompilations, whole) for one in vars(module).values() if isinstance(one, Example)
]

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_mistakes_are_named_and_nothing_else(example: Example, tmp_path: Path) -> None:
    with observing(tmp_path / "run.log") as found:
        example.program()
    missed, false = score(example, found[0].findings())
    told = [f"{one.kind} at {one.place.line}: {one.cause} Fix: {one.advice}" for one in found[0].findings()]
    assert (missed, false) == ([], []), "\n".join(told)
