"""Each kind of mistake is planted in a run and found, with its line, its count and what it cost; nothing else is."""

import pytest
from story import Story, clean

from xlaprof.events import Change


def shape(old: str, new: str, stack: int = 0, subject: str = "input of aten::embedding") -> Change:
    return Change(what="shape", old=old, new=new, subject=subject, stack=stack)


def test_a_clean_run_has_no_finding() -> None:
    story = clean()
    assert story.findings() == []
    assert story.report().clean


def test_a_clean_run_of_two_steps_or_none_has_no_finding() -> None:
    assert clean(2).findings() == []
    assert clean(0).findings() == []
    assert Story().findings() == []


def ragged(epochs: int = 3) -> Story:
    """Seven batches an epoch, the last one smaller."""
    story = Story()
    barrier = story.line(39, "xr.sync()")
    upload = story.line(34, "x = x.to(device)")
    for _ in range(epochs):
        for batch in range(7):
            with story.step():
                story.trace(2)
                last = batch == 6
                change = shape("i64[32,16]", "i64[8,16]", upload)
                story.barrier(barrier, 8, "ragged" if last else "full", change=change if last else None)
                story.spend(8)
    story.read(story.line(40, "print(loss.item())"))
    return story


def test_a_ragged_last_batch_is_one_recompile_with_what_changed_and_what_to_do() -> None:
    (finding,) = ragged().findings()
    assert finding.kind == "recompile"
    assert (finding.place.file, finding.place.line, finding.place.code) == ("train.py", 34, "x = x.to(device)")
    assert finding.count == 1
    assert finding.cost_s == pytest.approx(0.5)
    assert finding.change is not None
    assert (finding.change.what, finding.change.old, finding.change.new) == ("shape", "i64[32,16]", "i64[8,16]")
    assert "from i64[32,16] to i64[8,16]" in finding.cause
    assert finding.advice == "Pad the last batch to 32 or leave it out."
    assert finding.severity == "high"
    assert finding.operation == "aten::embedding"


def test_a_growing_input_is_one_finding_for_all_its_compiles() -> None:
    story = Story()
    barrier, cat = story.line(40, "xr.sync()"), story.line(39, "ids = torch.cat([ids, token], 1)")
    for n in range(10):
        with story.step("generate"):
            story.trace(1)
            change = shape(f"i64[1,{n + 3}]", f"i64[1,{n + 4}]", cat) if n else None
            story.barrier(barrier, 2, f"length {n}", compile=100, change=change)
    (finding,) = story.findings()
    assert (finding.kind, finding.count, finding.place.line) == ("recompile", 9, 39)
    assert finding.cost_s == pytest.approx(0.9)
    assert "Dimension 1 grows" in finding.advice
    assert "(14 at least, so far)" in finding.advice
    assert any("i64[1,4] -> i64[1,5]" in line for line in finding.evidence)


def test_sizes_without_order_are_padded_to_a_few() -> None:
    story = Story()
    barrier = story.line(40, "xr.sync()")
    for n in [65, 63, 70, 40, 90]:
        with story.step():
            story.barrier(barrier, 2, f"{n} rows", change=shape("f32[65,7]", f"f32[{n},7]") if n != 65 else None)
    (finding,) = story.findings("recompile")
    assert finding.count == 4
    assert (
        "took 5 sizes from 40 to 90: pad it to 90 (1 compile instead of 5, 27% of the work on padding)"
        in finding.advice
    )
    assert finding.values == (("65", 1), ("63", 1), ("70", 1), ("40", 1), ("90", 1))
    assert [one.edges for one in finding.buckets[:2]] == [(90,), (70, 90)]
    assert "size = 90" in finding.remedy


def test_a_selection_whose_size_values_decide_is_reported_as_that() -> None:
    story = Story()
    barrier, line = story.line(40, "xr.sync()"), story.line(31, "kept = logits[mask]")
    before = 65
    for n in (65, 63, 70, 64):
        change = Change(what="size", old=str(before), new=str(n), subject="result of aten::index", stack=line)
        with story.step():
            story.read(line, op="aten::index")
            story.barrier(barrier, 2, f"{n} rows", change=change if n != before else None)
        before = n
    (recompile,) = [one for one in story.findings() if one.place.line == 31]
    (read,) = recompile.parts
    assert (recompile.kind, read.kind, read.count) == ("recompile", "fallback", 4)
    assert (recompile.operation, recompile.count, recompile.place.line) == ("aten::index", 3, 31)
    assert "size of the result of aten::index, which values decide, changed from 65 to 63" in recompile.cause
    assert "Values decide the size of the result of aten::index (a selection by aten::nonzero)" in read.cause
    assert "ignore_index" in recompile.advice
    compiled = sum(moment.dur for moment in recompile.counted.moments) / 1e9
    assert recompile.cost_s == pytest.approx(compiled + read.cost_s), "no second is in both"
    assert recompile.gain_s >= read.gain_s


def test_a_number_that_becomes_zero_is_a_recompile() -> None:
    story = Story()
    barrier, opt = story.line(34, "xr.sync()"), story.line(32, "opt.step()")
    for n in range(15):
        with story.step():
            change = Change("scalar", "0", "scalar input f0", "alpha of aten::add_", stack=opt)
            story.barrier(barrier, 5, "lr 0" if not n else "lr", change=change if n else None)
            story.spend(4)
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("recompile", 32)
    assert "0, 1 and -1" in finding.cause
    assert "1-element tensor" in finding.advice


def test_an_optimizer_that_makes_its_state_in_the_first_step_is_warm_up() -> None:
    story = Story()
    barrier, opt = story.line(34, "xr.sync()"), story.line(32, "opt.step()")
    for n in range(12):
        with story.step():
            change = Change("operation", "aten::zeros_like", "aten::mul", stack=opt, code_seen=False)
            story.barrier(barrier, 10, "first" if not n else "later", change=change if n else None)
            story.spend(9)
    assert story.findings() == []


def test_a_branch_that_goes_back_and_forth_between_graphs_is_a_recompile() -> None:
    """Gradient accumulation with a barrier for each micro-batch: three graphs take turns at one barrier."""
    story = Story()
    barrier = story.line(39, "xr.sync()")
    backward, opt = story.line(35, "loss.backward()"), story.line(37, "opt.step()")
    for n in range(24):
        with story.step():
            graph = ["no grad", "add grad", "add grad", "optimize"][n % 4]
            change = {
                "no grad": None,
                "add grad": Change("operation", "barrier", "aten::add_", stack=backward, code_seen=False),
                "optimize": Change("operation", "barrier", "aten::add_", stack=opt, code_seen=False, subject="the end"),
            }[graph]
            story.barrier(barrier, 6, graph, change=change)
            story.spend(5)
    story.finish()
    found = {finding.place.line: finding for finding in story.findings("recompile")}
    assert set(found) == {35, 37}
    assert all(finding.count == 1 for finding in found.values())
    (excess,) = story.findings("excess_barriers")
    assert (excess.place.line, excess.count) == (39, 18)
    assert "line 37" in excess.advice


def test_an_evaluation_with_its_own_barrier_is_warm_up() -> None:
    story = Story()
    train, evaluate = story.line(20, "xr.sync()"), story.line(50, "xr.sync()", func="evaluate")
    for _ in range(3):
        for _ in range(10):
            with story.step():
                story.barrier(train, 10, "train")
                story.spend(9)
        for _ in range(4):
            with story.step("eval"):
                story.barrier(evaluate, 5, "eval", change=shape("f32[32,8]", "f32[64,8]"))
                story.spend(4)
        story.read(story.line(55, "print(accuracy.item())", func="evaluate"))
    assert story.findings() == []


def test_an_evicted_graph_is_a_recompile() -> None:
    story = clean()
    with story.step():
        story.barrier(story.line(20, "xr.sync()"), 10, "again", change=Change("evicted", "program 1", "program 1"))
    (finding,) = story.findings()
    assert "cache" in finding.advice


def reading(every: int = 1, steps: int = 40, device: float = 30, host: float = 6) -> Story:
    story = Story()
    barrier, item = story.line(20, "xr.sync()"), story.line(22, "losses.append(loss.item())")
    for n in range(steps):
        with story.step():
            story.trace(host)
            story.barrier(barrier, device)
            if not n % every:
                story.read(item)
    story.read(story.line(30, "print(loss.item())"))
    return story


def test_a_read_in_every_step_is_found_and_costs_what_overlapping_would_give_back() -> None:
    (finding,) = reading().findings()
    assert (finding.kind, finding.place.line, finding.count) == ("transfer", 22, 40)
    assert finding.operation == "aten::_local_scalar_dense"
    # Host 6.2 ms, device 30 ms: in turn 36.2, overlapped 30. The last read has nothing after it.
    assert finding.cost_s == pytest.approx(39 * 0.0062 + 40 * 0.00001, rel=0.01)
    assert "in every step" in finding.cause
    assert "every 10 steps" in finding.advice
    assert "loss" in finding.advice


def test_what_the_report_says_a_read_costs_is_what_the_run_gains_without_it() -> None:
    with_reads, without = reading(), reading(every=1000)
    gained = sum(with_reads.report().steps[0].recent_s[1:]) - sum(without.report().steps[0].recent_s[1:])
    (finding,) = with_reads.findings()
    # Without reads the last steps are still queued when the host is done: they are waited for at the end.
    ended = (with_reads.finish()[-1].t - without.finish()[-1].t) / 1e9  # type: ignore[attr-defined]
    assert finding.cost_s == pytest.approx(ended, rel=0.05)
    assert gained > 0


def test_a_rare_cheap_read_is_no_finding() -> None:
    assert reading(every=20, steps=100, device=1).findings() == []


def test_a_read_to_decide_is_reported_to_decide_on_the_device() -> None:
    story = Story()
    barrier, test = story.line(40, "xr.sync()"), story.line(41, "if token.item() == EOS:")
    for _ in range(10):
        with story.step("generate"):
            story.trace(2)
            story.barrier(barrier, 5)
            story.read(test)
    (finding,) = story.findings("transfer")
    assert finding.advice.startswith("Decide on the device")


def test_a_read_before_the_barrier_needs_a_graph_of_its_own() -> None:
    """Every fifth step reads the loss before the barrier; no step is named, the barrier tells them apart."""
    story = Story()
    barrier, item = story.line(44, "xr.sync()"), story.line(41, "print(loss.item())")
    for n in range(20):
        story.trace(4)
        if n % 5 == 0:
            story.compile("loss only", 300, item, trigger="read")
            story.execute("loss only", 5, item, "read")
            story.read(item)
        story.barrier(barrier, 12)
        story.spend(6)
    kinds = {(finding.kind, finding.place.line) for finding in story.findings()}
    assert kinds == {("transfer", 41)}  # one cause, one finding


def test_a_fallback_takes_its_transfers_with_it() -> None:
    story = Story()
    barrier, eig = story.line(20, "xr.sync()"), story.line(15, "r = torch.linalg.eigvals(w)")
    for _ in range(10):
        with story.step():
            story.trace(3)
            story.fallback(eig, "aten::linalg_eig", 4)
            story.barrier(barrier, 10)
            story.spend(9)
    (finding,) = story.findings()
    assert (finding.kind, finding.operation, finding.place.line) == ("fallback", "aten::linalg_eig", 15)
    assert finding.count == 10
    assert finding.cost_s > 0.04
    assert "with 10 transfers" in finding.cause
    assert "eigh" in finding.advice


def test_one_fallback_while_setting_up_is_no_finding() -> None:
    story = Story()
    story.fallback(story.line(3, "order = torch.randperm(n)"), "aten::randperm", 4)
    assert clean(story=story).findings() == []


def test_steps_without_a_barrier_are_one_missing_barrier() -> None:
    story = Story()
    loop = story.line(42, "eps = model(x, t)")
    for _ in range(50):
        with story.step("denoise"):
            story.trace(2)
    read = story.line(44, "picture = x.cpu()")
    story.compile("unrolled", 4000, read, trigger="read", ops=5000)
    story.execute("unrolled", 80, read, "read")
    story.read(read, "aten::_to_copy")
    (finding,) = story.findings()
    assert (finding.kind, finding.count) == ("missing_barrier", 50)
    assert finding.place.line == 44
    assert "50 steps became one graph of 5,000 operations" in finding.cause
    assert finding.cost_s == pytest.approx(4 * (1 - 0.02**0.5))  # a fiftieth compiles in more than a fiftieth
    assert loop


def test_an_unnamed_loop_that_only_reads_cut_is_a_missing_barrier() -> None:
    story = Story()
    read = story.line(44, "picture = x.cpu()", func="main")
    loop = story.line(19, "h = torch.relu(self.inp(x))", func="forward", outer=(42,))
    for _ in range(2):
        story.trace(100)
        story.compile("unrolled", 2000, read, trigger="read", ops=600, loops=50, loop=loop)
        story.execute("unrolled", 50, read, "read")
        story.read(read, "aten::_to_copy")
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line, finding.count) == ("missing_barrier", 42, 50)


def test_layers_that_repeat_a_line_in_every_step_are_no_missing_barrier() -> None:
    story = Story()
    barrier, layer = story.line(20, "xr.sync()"), story.line(8, "x = self.norm(x)")
    for _ in range(10):
        with story.step():
            story.barrier(barrier, 10, loops=96, loop=layer)
            story.spend(9)
    assert story.findings() == []


def test_a_graph_that_grows_from_step_to_step() -> None:
    story = Story()
    barrier, line = story.line(20, "xr.sync()"), story.line(12, "state = cell(state)")
    for n in range(8):
        with story.step():
            change = Change("operation", "barrier", "aten::mm", "the end of the graph", stack=line)
            story.barrier(barrier, 5, f"graph {n}", 100, ops=100 + 50 * n, change=change if n else None)
    (finding,) = story.findings("growing_graph")
    assert (finding.place.line, finding.count) == (20, 7)
    assert "from 100 to 450 operations" in finding.cause
    assert finding.cost_s == pytest.approx(0.7)


def test_many_small_graphs_in_a_step_are_excess_barriers() -> None:
    story = Story()
    for _ in range(10):
        with story.step():
            for line in (10, 14, 18, 22):
                story.trace(0.2)
                story.barrier(story.line(line, "xr.sync()"), 1, f"at {line}", 50, ops=20 + line, dispatch=0.5)
    (finding,) = story.findings()
    assert (finding.kind, finding.count, finding.place.line) == ("excess_barriers", 30, 10)
    assert "lines 10, 14, 18, 22" in finding.cause
    assert "line 22" in finding.advice


def test_two_barriers_in_a_step_are_nobodys_mistake() -> None:
    story = Story()
    for _ in range(10):
        with story.step():
            story.barrier(story.line(10, "xr.sync()"), 5, "a")
            story.barrier(story.line(20, "xr.sync()"), 5, "b")
            story.spend(9)
    assert story.findings() == []


def test_idle_time_of_compiles_reads_and_fallbacks_is_not_reported_twice() -> None:
    kinds = {finding.kind for finding in [*ragged().findings(), *reading().findings()]}
    assert kinds == {"recompile", "transfer"}


def test_graph_breaks_are_reported_by_line() -> None:
    story = clean()
    print_line, item = story.line(19, 'print("hidden")', func="forward"), story.line(21, "peak = h.max().item()")
    for _ in range(3):
        story.breaks("call to print", print_line, hint="Remove the print.")
    story.breaks("Tensor.item()", item)
    found = {finding.place.line: finding for finding in story.findings("graph_break")}
    assert found[19].count == 3
    assert found[19].advice == "Remove the print."
    assert found[21].advice.startswith("Move what this line does out of the compiled function")  # no hint: in general


def test_ids_name_the_defect_and_not_its_line_number() -> None:
    def planted(line: int) -> str:
        story = Story()
        barrier, item = story.line(line - 2, "xr.sync()"), story.line(line, "log(loss.item())")
        for _ in range(10):
            with story.step():
                story.trace(2)
                story.barrier(barrier, 5)
                story.read(item)
        (finding,) = story.findings()
        return finding.id

    assert planted(22) == planted(122)


def test_findings_are_ranked_by_cost() -> None:
    story = ragged()
    eig = story.line(15, "torch.linalg.eigvals(w)")
    for _ in range(5):
        with story.step():
            story.fallback(eig, "aten::linalg_eig", 1)
            story.barrier(story.line(39, "xr.sync()"), 8, "full")
    costs = [finding.cost_s for finding in story.findings()]
    assert len(costs) == 2
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("op", ["aten::linalg_eig", "aten::nonzero"])
def test_what_a_fallback_costs_and_what_its_fix_gives_back_count_the_same_graph(op: str) -> None:
    story = Story()
    line, barrier = story.line(15, "w = f(a)"), story.line(20, "xm.mark_step()")
    story.barrier(barrier, device=10, compile=0)
    for _ in range(20):
        with story.step():
            story.trace(3)
            start = story.now
            story.compile("inputs", 400, line, trigger="read")
            story.read(line, op, copy=5)
            if op == "aten::linalg_eig":
                story.replay_fallback(line, op, start)
            story.trace(10)
            story.barrier(barrier, device=10, compile=0)
    (finding,) = story.findings("fallback")
    assert finding.cost_s > 0.4
    assert finding.gain_s == pytest.approx(finding.cost_s, rel=0.25)


def test_once_is_no_rhythm_and_a_compile_is_in_no_median_step() -> None:
    story = Story()
    barrier, line = story.line(20, "xm.mark_step()"), story.line(12, "y = f(x)")
    change = shape("f32[8]", "f32[5]", line)
    for n in range(30):
        with story.step():
            late = n == 20
            story.barrier(barrier, 1, "late" if late else "step", compile=900, change=change if late else None)
            story.wait()
    report = story.report()
    (finding,) = report.findings
    assert (finding.kind, finding.count, finding.rhythm) == ("recompile", 1, "")
    assert report.predicted is not None
    assert report.predicted.fixed_step_s == pytest.approx(report.predicted.step_s)
