"""The words of advice are the source's own: those that a recording carries, else PyTorch/XLA's."""

import re

import jax
import jax.numpy as jnp
import pytest
import torch
from story import Story

from analysis.test_findings import ragged
from analysis.test_reads import looped
from xlaprof import log
from xlaprof.analysis.evidence.reading import ELEMENTS, ONCE, ReadAdvice, advise_read
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.events import DataWait, Event, Header, Source
from xlaprof.sources.jax import Jax
from xlaprof.vocabulary import STANDARD, Vocabulary, fill

#: one line for each use of a number
LINES = (
    "damping *= 1 + float(drift)",
    "while float(gap) > 1e-3:",
    "if float(drift) > 2:",
    "assert float(drift) < 2",
    "x = x[:, : int(longest)]",
    "name = names[int(label)]",
    "hits[label] += int(guess == label)",
    "wrong += int((guess != y).sum())",
    "print(float(loss))",
    "history.append(float(loss))",
    "k = int(pos.sum())",
    "at = int(self.cursor)",
    "scale = float(norm)",
    "if jnp.isnan(loss):",
    "n = int(owner.max()) + 1",
    "at = int(jnp.nonzero(t == now)[0])",
    "action = int(policy(obs))",
)
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


def drawn(story: Story) -> Story:
    """From a loader."""
    story.data(0.1, story.line(33, "for x in loader:"))
    return story


def found(story: Story, *sources: Source) -> Finding:
    events: list[Event] = list(story.events)
    at = next(i for i, event in enumerate(events) if isinstance(event, Header)) + 1
    (finding,) = Run().feed_all([*events[:at], *sources, *events[at:]]).report().findings
    return finding


@pytest.mark.parametrize(
    ("story", "standard", "own"),
    [
        (lambda: drawn(ragged()), "drop_last=True to the DataLoader", "drop_remainder=True to the batching"),
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


def read_by_jax(line: str, every: int) -> ReadAdvice:
    return advise_read("jax.Array: one number", "", line, every, Jax.vocabulary)


@pytest.mark.parametrize("every", [10, ONCE])
@pytest.mark.parametrize("line", LINES)
def test_what_jax_programs_read_is_told_without_names_that_only_pytorch_has(line: str, every: int) -> None:
    way = read_by_jax(line, every)
    text = f"{way.advice} {way.remedy} {fill(ELEMENTS, to_host=Jax.vocabulary.to_host)}"
    names = {name for name in re.findall(r"\w+", text) if "_" in name or name in ("torch", "detach", "gather", "cpu")}
    of_torch = {name for name in names if any(hasattr(one, name) for one in (torch, torch.Tensor, torch.nn.functional))}
    assert not of_torch - set(dir(jnp)) - set(dir(jax.Array)) - set(dir(jax.lax)), text
    assert "device=device" not in text
    assert "torch" not in text
    for name in re.findall(r"jnp\.(\w+)", text):
        assert hasattr(jnp, name), name


@pytest.mark.parametrize("line", LINES)
def test_code_for_reads_of_jax_programs_runs(line: str) -> None:
    entries, values = jnp.array([0, 2, 2]), jnp.ones(3)
    table = {"table": jnp.arange(4.0), "index": jnp.array([3]), "largest": 4, "size": jnp.array(2), "ENTRIES": 3}
    chosen = {"condition": entries > 0, "one": values, "other": -values, "entries": entries, "values": values}
    loop = {"loader": [(jnp.ones((2, 3)), jnp.array([0, 1]))], "model": jnp.cos, "loss_fn": lambda out, y: out.sum()}
    state = {
        "step": 5,
        "loss": jnp.array(1.0),
        "value": jnp.array(1.0),
        "bad": jnp.array(False),
        "losses": [],
        "change": jnp.array(2.0),
    }
    given = {"change": values, **table, **chosen, **loop, **state, "jnp": jnp, "print": lambda *_: None}
    if "values.append" in (code := read_by_jax(line, 10).remedy):
        given["values"] = []
    if "..." not in code:
        exec(code, given)
    if "sums" in given:
        assert given["sums"].tolist() == [1.0, 0.0, 2.0]


def test_a_number_that_the_device_computes_is_first_to_stay_there_and_one_that_was_kept_first_to_be_the_hosts() -> None:
    for words, take in ((STANDARD, "index_select"), (Jax.vocabulary, "jnp.take")):
        kept = advise_read("aten::_local_scalar_dense", "", "at = int(self.cursor)", 10, words).advice
        computed = advise_read("aten::_local_scalar_dense", "", "k = int((labels > 0).sum())", 10, words).advice
        assert kept.startswith("Keep the number in Python")
        assert computed.startswith("Use the tensor itself")
        assert all(take in advice for advice in (kept, computed))
