"""The words of advice are the source's own: those that a recording carries, else PyTorch/XLA's."""

import pytest
from story import Story

from analysis.test_findings import ragged
from analysis.test_reads import looped
from xlaprof import log
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.events import DataWait, Event, Header, Source
from xlaprof.vocabulary import STANDARD, Vocabulary

JAX = Vocabulary(
    arrays="jnp",
    barrier="jax.block_until_ready()",
    barrier_code="jax.block_until_ready(state)",
    keep="on the device",
    keep_code="{name}",
    scalar_code="jnp.asarray([{value}])",
    zeros_code="jnp.zeros(({shape},), {dtype})",
    convert_code="{name}.astype({dtype})",
    pad_code="jnp.pad({name}, size - {name}.shape[{axis}])",
    write_code="lax.dynamic_update_slice_in_dim(buffer, new, position, {axis})",
    load_ahead="more workers of the grain loader",
    background="a background thread",
    drop_last="pass drop_remainder=True to the batching",
    drop_last_code=".batch(size, drop_remainder=True)",
    scalars_as_inputs="",
    scalars_as_inputs_code="",
    shard="jax.device_put with the sharding",
)


def unrolled() -> Story:
    story = Story()
    read = story.line(44, "picture = x.copy()", func="main")
    loop = story.line(19, "h = relu(inp(x))", func="forward", outer=(42,))
    for _ in range(2):
        story.trace(100)
        story.compile("unrolled", 2000, read, trigger="read", ops=600, loops=50, loop=loop)
        story.execute("unrolled", 50, read, "read")
        story.read(read)
    return story


def starved() -> Story:
    story = Story()
    barrier, draw = story.line(20, "sync()"), story.line(10, "for x in loader:")
    for _ in range(20):
        with story.step():
            story.put(DataWait(story.now, 30_000_000, draw))
            story.spend(30)
            story.barrier(barrier, 10)
            story.spend(10)
    return story


def found(story: Story, *sources: Source) -> Finding:
    events: list[Event] = list(story.events)
    at = next(i for i, event in enumerate(events) if isinstance(event, Header)) + 1
    (finding,) = Run().feed_all([*events[:at], *sources, *events[at:]]).report().findings
    return finding


@pytest.mark.parametrize(
    ("story", "standard", "own"),
    [
        (ragged, "drop_last=True to the DataLoader", "drop_remainder=True to the batching"),
        (ragged, "x = torch.nn.functional.pad(x, (0, 0, ", "x = jnp.pad(x, "),
        (looped, "on the device (.detach())", "Keep the loss on the device and read it"),
        (looped, "losses.append(loss.detach())", "losses.append(loss)"),
        (unrolled, "Call torch_xla.sync() (xlaprof.runtime.sync())", "Call jax.block_until_ready() at the end"),
        (starved, "more DataLoader workers, a larger prefetch_factor", "more workers of the grain loader"),
    ],
)
def test_advice_speaks_of_the_framework_that_was_observed(story, standard, own) -> None:  # type: ignore[no-untyped-def]
    for sources in ((), (Source(0, "torch.compile"),)):
        finding = found(story(), *sources)
        assert standard in f"{finding.advice}\n{finding.remedy}"
    finding = found(story(), Source(0, "jax", JAX))
    text = f"{finding.advice}\n{finding.remedy}"
    assert own in text
    assert "torch" not in text
    assert "DataLoader" not in text


def test_the_log_carries_what_differs(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "run.log"
    story = Story(path=path)
    story.put(Source(1, "torch.compile"))
    story.put(Source(2, "jax", Vocabulary(arrays="jnp")))
    lines = path.read_text().splitlines()
    assert lines[-2:] == [
        '{"k":"source","t":1,"name":"torch.compile"}',
        '{"k":"source","t":2,"name":"jax","words":{"arrays":"jnp"}}',
    ]
    run = Run().feed_all(log.read(path))
    assert run.words == Vocabulary(arrays="jnp")
    assert (Run() + run).words == run.words
    assert Run().words == STANDARD
