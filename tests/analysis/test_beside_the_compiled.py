"""Calls of the loop beside what is compiled, batches that are drawn slowly, and guards on what a program keeps."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from tests.analysis.compiling import Compiling, shape
from tests.story import MS, Story
from xlaprof.analysis.model import Finding
from xlaprof.events import Batches, Change, CompileAsked, DataWait, Frame, Gc, Guard, Look, Stack


def looking(
    called: str,
    line: int,
    state: str = "python",
    *,
    loop: int = 118,
    ms: int = 400,
    call: str = "returns = slow(rewards)",
    collects: bool = False,
    compile_ms: int = 50_000,
    backend: str = "inductor",
    inner: int = 0,
) -> Compiling:
    """Compiled steps at line 120, and ten turns in which line 124 calls a function that looks find."""
    compiling = Compiling()
    story = compiling.story
    compiling.call = story.line(120, "loss = fast(x)", func="main", loops=(118,))
    compiling.compile("0/0", compile_ms, backend=story.text(backend))
    stack = story.line(line, called, func="slow", outer=(124,), loops=(inner, loop), call=call)
    for _ in range(10):
        story.emit(Look(story.now, ms * MS, stack, state))
        if collects:
            story.emit(Gc(story.now, ms * MS, 2, stack=stack))
        story.spend(ms)
        story.spend(600)
    story.finish()
    return compiling


def test_a_call_that_takes_much_of_the_turns_is_told_at_the_line_that_costs() -> None:
    (finding,) = looking("total = [a + g ** k * r for a, r in zip(total, later)]", 79).findings("idle_gap")
    assert (finding.place.line, finding.count, round(finding.cost_s, 1)) == (79, 10, 4.0)
    assert "called at train.py:124 (returns = slow(rewards)), most of it at train.py:79" in finding.cause
    assert "40% of the time that neither compiling nor imports took" in finding.cause
    assert finding.advice.startswith("Do once, before the loop, what is the same in each turn; work on whole arrays")
    (shown,) = looking("writer.add_histogram(name, p.grad)", 79, call="watch(model)").findings("idle_gap")
    assert shown.advice.startswith("Do it in each tenth turn, or more seldom"), "nobody takes its value"
    layers = "return self.down(self.up(x))"
    (eager,) = looking(layers, 79, "torch", call="y = teacher(x)", compile_ms=1_500).findings("idle_gap")
    assert eager.advice.startswith("Compile what is called there, too (torch.compile)")
    assert (round(eager.cost_s, 1), round(eager.gain_s, 1)) == (4.0, 0.5), "half of it remains, and it is compiled"
    again = looking(layers, 79, "torch", call="y = teacher(x)", compile_ms=2_500)
    assert again.findings("idle_gap") == [], "to compile it takes longer than half of the four seconds"
    (running,) = [one for one in looking("x", 79).story.report().accounts if one.what == "run"]
    assert round(running.explained_s, 1) == 4.0


def test_a_closure_that_is_handed_to_torch_compile_anew_in_each_turn_costs_the_call() -> None:
    """Nothing is compiled again: the closures of a function have one code."""
    code, call = "return torch.compile(decay)", "decay = of_half_life(days)"
    assert looking(code, 79, ms=160, call=call).findings("idle_gap") == [], "of another function's call it is little"
    wrapped = looking(code, 79, ms=160, call=call)
    place = wrapped.story.line(79, code, func="slow", outer=(124,), loops=(0, 118), call=call)
    wrapped.story.emit(CompileAsked(wrapped.story.now, place))
    (finding,) = wrapped.findings("idle_gap")
    assert (finding.place.line, round(finding.cost_s, 1)) == (79, 1.6)
    assert finding.advice.startswith("Call torch.compile once, before the loop, and keep what it returns")


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("self.log('f1', self.f1.compute())", "self.f1.compute()"),
        ("self.note(f1(torch.cat(self.guessed)))", "torch.cat(self.guessed)"),
        ("self.log('f1', f1(guess, truth))", ""),
    ],
)
@pytest.mark.parametrize("loop", [31, 0])
def test_what_a_step_computes_from_all_before_is_told_as_that(shown: str, found: str, loop: int) -> None:
    """A library calls, in its loop or once, the step of a tagger, which ends with a score of all so far."""
    compiling = Compiling()
    run = ((SITE + "fitter/loops.py", 33, "Fitter.run", "self.module.step(batch)", loop),)
    compiling.call = under(compiling.story, (60, "tags = self.net(words)", "Tagger.step"), run)
    compiling.compile("0/0", 500, backend=compiling.story.text("aot_eager"))
    score = under(compiling.story, (64, shown, "Tagger.step"), run)
    for _ in range(3):
        compiling.story.emit(Look(compiling.story.now, 400 * MS, score, "torch"))
        compiling.story.spend(1_000)
    compiling.story.finish()
    found_at = compiling.findings("idle_gap")
    assert [one.place.line for one in found_at] == [64] * (bool(found) and bool(loop))
    assert all(
        one.advice.startswith(f"{found} computes from all that was kept in the turns before") for one in found_at
    )


def test_compiling_is_advised_only_for_a_backend_that_makes_code() -> None:
    """A simulated annealing walks in each turn, operation by operation: aot_eager would run it so as well."""
    walk = "energy = lattice.roll(1, 0) * lattice"
    call = "lattice = anneal(lattice)"
    (told,) = looking(walk, 79, "torch", call=call, compile_ms=500, inner=77).findings("idle_gap")
    assert told.advice.startswith("Compile one turn of the loop there, as a function of its own, too")
    assert round(told.gain_s, 1) == 1.5
    for backend in ("aot_eager", "eager"):
        none = looking(walk, 79, "torch", call=call, compile_ms=500, backend=backend)
        assert none.findings("idle_gap") == []


@pytest.mark.parametrize(
    ("func", "backend", "cost", "gain"),
    [("Tides.forward", "", 4, 2), ("Tides.forward", ', backend="aot_eager"', 4, 0), ("Tides.roll_out", "", 3, 1.5)],
)
def test_what_was_to_be_compiled_costs_the_time_in_which_it_was_seen(
    func: str, backend: str, cost: float, gain: float
) -> None:
    """A model of tides is compiled, and rolled out by a method of its own: each second it sets a chart as well."""
    story = Story()
    story.emit(CompileAsked(story.now, story.line(9, f"tides = torch.compile(Tides(){backend})")))
    steps = story.line(30, "return level + self.pull(moon).tanh()", func=func, outer=(50,), call="tides.roll_out(moon)")
    trains = story.line(51, "loss.backward()")
    chart = story.line(52, "chart.set_data(levels)")
    for _ in range(10):
        for stack, state, ms in ((steps, "torch", 300), (steps, "python", 100), (trains, "torch", 200)):
            story.emit(Look(story.now, ms * MS, stack, state))
            story.spend(ms)
        story.emit(Look(story.now, 300 * MS, chart, "python"))
        story.spend(400)
    story.finish()
    (finding,) = story.findings("uncompiled")
    assert (finding.cost_s, finding.gain_s) == (cost, gain)
    assert f"without, {cost}.00 s of it in {'forward' if 'forward' in func else 'its operations'}." in finding.cause
    (running,) = [one for one in story.report().accounts if one.what == "run"]
    assert running.explained_s == cost, "the rest is the program's own work"


@pytest.mark.parametrize(("code", "told"), [("spec = stft(x)", False), ("y = [stft(one) for one in x]", True)])
def test_work_on_whole_arrays_is_told_where_it_takes_a_large_part_of_the_turns(code: str, told: bool) -> None:
    """A fifth of the turns goes into a transform of the batch: nobody knows whether the next turn needs another."""
    findings = looking(code, 79, ms=150).findings("idle_gap")
    assert ["in place of a loop over elements" in one.advice for one in findings] == [True] * told
    (large,) = looking("spec = stft(x)", 79).findings("idle_gap")
    assert large.advice == "Do once, before the loop, what is the same in each turn."


def test_what_is_compiled_is_no_call_beside_itself() -> None:
    """Under aot_eager looks find its operations, at the line of the function's definition."""
    compiling = Compiling()
    story = compiling.story
    compiling.call = story.line(120, "loss = fast(x)", func="main", loops=(118,))
    compiling.compile("0/0", 50_000)
    runs = story.line(10, "def forward(x):", func="forward", outer=(124,), loops=(0, 118), call="serve(fast, x)")
    for _ in range(10):
        story.emit(Look(story.now, 400 * MS, runs, "torch"))
        story.spend(1_000)
    story.finish()
    assert compiling.findings("idle_gap") == []
    (running,) = [one for one in story.report().accounts if one.what == "run"]
    assert running.reason.startswith("what is compiled ran")


def test_collections_that_the_loop_asks_for_are_told_once() -> None:
    compiling = looking("gc.collect()", 79, call="tidy()", collects=True)
    (finding,) = compiling.findings("idle_gap")
    assert (finding.operation, finding.count, round(finding.cost_s, 1)) == ("garbage collection", 10, 4.0)
    (running,) = [one for one in compiling.story.report().accounts if one.what == "run"]
    assert (round(running.explained_s, 1), running.findings) == (4.0, (finding.id,))


def test_a_checkpoint_in_most_turns_is_to_be_written_less_often() -> None:
    (finding,) = looking("torch.save(state, path)", 70, "checkpoint").findings("idle_gap")
    assert finding.operation == "checkpoint"
    assert finding.advice.startswith("Save less often")


SITE = "/venv/lib/python3.11/site-packages/"
Below = tuple[tuple[str, int, str, str, int], ...]


def under(story: Story, line: tuple[int, str, str], library: Below) -> int:
    """A stack: a line and function of the program's that these lines of a library call, innermost first, under
    fitter.fit(module) at line 90."""
    text = story.text
    frames = [
        Frame(text("train.py"), number, text(func), text(code))
        for number, code, func in (line, (90, "fitter.fit(module)", "main"))
    ]
    calls = [Frame(text(file), at, text(func), text(code), loop) for file, at, func, code, loop in library]
    stack = 900 + line[0]
    story.put(Stack(id=stack, frames=frames, library=calls, depths=[1] * len(calls)))
    return stack


def fitted(*works: Below, state: str = "python", ms: int = 200, loop: int = 31) -> Compiling:
    """The loop of a library runs compiled steps of the program's, and in each of twelve turns works of its own."""
    compiling = Compiling()
    story, loops = compiling.story, SITE + "fitter/loops.py"
    step = (loops, 33, "Fitter.run", "self.module.step(batch)", loop)
    compiling.call = under(story, (20, "loss = self.net(x)", "step"), (step,))
    compiling.compile("0/0", 10_000)
    turn = (loops, 36, "Fitter.run", "self._turn_ends()", loop)
    stacks = [story.line(90, "fitter.fit(module)", func="main", library=(*below, turn)) for below in works]
    for _ in range(12):
        for stack in stacks:
            story.emit(Look(story.now, ms * MS, stack, state))
            story.spend(ms)
        story.spend(500)
    story.finish()
    return compiling


SAVES = ("fitter/saver.py", 7, "Saver.save_checkpoint", "self._write(state)", 0)
WRITES = ("lightning/pytorch/callbacks/model_checkpoint.py", 7, "ModelCheckpoint.save_checkpoint", "self._write()", 0)
CSV = ("lightning/fabric/loggers/csv_logs.py", 240, "_ExperimentWriter.save", "self._fs.open(path)", 0)
SCREEN = ("lightning/pytorch/callbacks/progress/tqdm_progress.py", 88, "Bar.on_train_batch_end", "bar.refresh()", 0)


def of(*lines: tuple[str, int, str, str, int]) -> Below:
    return tuple((SITE + file, number, func, code, loop) for file, number, func, code, loop in lines)


def test_a_checkpoint_that_a_librarys_loop_writes_again_and_again_is_told_at_the_line_that_runs_it() -> None:
    (finding,) = fitted(of(SAVES), state="checkpoint").findings("idle_gap")
    assert (finding.place.line, finding.operation, finding.count) == (90, "checkpoint", 12)
    assert "waits again and again while a checkpoint is saved at train.py:90" in finding.cause
    assert "most of it in fitter's Saver.save_checkpoint, at fitter/saver.py:7 (self._write(state))" in finding.cause
    assert "an option of its says how often" in finding.advice
    assert fitted(of(SAVES), state="checkpoint", loop=0).findings("idle_gap") == [], "no loop repeats it"


def test_the_option_of_a_library_that_saves_is_advised() -> None:
    (finding,) = fitted(of(WRITES), state="checkpoint").findings("idle_gap")
    assert (finding.place.line, finding.place.acting.line) == (90, 7)
    assert finding.advice.startswith("Let ModelCheckpoint save less often: every_n_epochs=1")


def test_what_a_library_does_in_its_turns_is_told_by_its_function_and_the_option_that_ends_it() -> None:
    """At one line of its loop a library writes a log, with a package of another's, and draws a bar: two options."""
    other = ("writing/files.py", 4, "append", "os.write(handle, row)", 0)
    compiling = fitted(of(other, CSV), of(SCREEN))
    log, bar = sorted(compiling.findings("idle_gap"), key=lambda one: one.place.acting.line, reverse=True)
    assert (log.place.line, log.place.acting.func, log.count) == (90, CSV[2], 12)
    assert "in each turn of a loop within train.py:90 (fitter.fit(module)), most of it in lightning's" in log.cause
    assert "_ExperimentWriter.save, at lightning/fabric/loggers/csv_logs.py:240 (self._fs.open(path))" in log.cause
    assert "Raise log_every_n_steps of the Trainer" in log.advice
    assert (bar.place.acting.func, bar.count) == (SCREEN[2], 12)
    assert "enable_progress_bar=False" in bar.advice
    (running,) = [one for one in compiling.story.report().accounts if one.what == "run"]
    assert round(running.explained_s, 1) == 4.8


def test_a_library_without_a_known_option_is_told_where_it_takes_a_large_part_of_the_turns() -> None:
    shows = ("fitter/watch.py", 12, "Watch.turn_ends", "self.chart.draw()", 0)
    (finding,) = fitted(of(shows), ms=300).findings("idle_gap")
    assert "fitter's Watch.turn_ends, at fitter/watch.py:12" in finding.cause
    assert "Look in fitter's documentation for the option that leaves Watch.turn_ends out" in finding.advice
    less = fitted(of(shows), ms=140)
    assert less.findings("idle_gap") == []
    (running,) = [one for one in less.story.report().accounts if one.what == "run"]
    assert "the program's own work, at train.py:90 in Watch.turn_ends" in running.text


@pytest.mark.parametrize(
    "code", ["self.optimizer.step()", "self.accelerator.backward(loss)", "self._backward_fn(loss)"]
)
def test_a_line_of_a_library_that_trains_is_the_programs_own_work(code: str) -> None:
    inner = ("fitter/parts.py", 51, "Parts.run", "loss.backward()", 0)
    assert fitted(of(inner, ("fitter/loops.py", 35, "Fitter.run", code, 31))).findings("idle_gap") == []


def test_what_a_line_of_the_program_calls_in_a_library_is_told_by_the_librarys_function() -> None:
    """The program's own loop logs with a tracker's package, which has another one write."""
    compiling = Compiling()
    story = compiling.story
    compiling.call = story.line(120, "loss = fast(x)", func="main", loops=(118,))
    compiling.compile("0/0", 50_000)
    below = of(("writing/files.py", 4, "append", "write(row)", 0), ("tracks/log.py", 61, "Run.log", "append(row)", 0))
    logs = story.line(122, "run.log(loss=loss)", func="main", loops=(118,), library=below)
    for _ in range(10):
        story.emit(Look(story.now, 400 * MS, logs, "python"))
        story.spend(1_000)
    story.finish()
    (finding,) = compiling.findings("idle_gap")
    assert finding.place.acting.at == (SITE + "tracks/log.py", 61)
    assert "train.py:122 (run.log(loss=loss)), most of it in tracks' Run.log, at tracks/log.py:61" in finding.cause
    assert finding.advice.startswith("Do it in each tenth turn, or more seldom")


@pytest.mark.parametrize(("loop", "ms", "why"), [(0, 400, "called once"), (118, 30, "little of the time")])
def test_what_is_called_once_or_takes_little_is_the_programs_own_work(loop: int, ms: int, why: str) -> None:
    assert looking("x", 79, loop=loop, ms=ms).findings("idle_gap") == [], why


def turns(
    call: tuple[int, str], *looks: tuple[int, str], within: int = 118, loop: int = 0, func: str = "main", ms: int = 400
) -> list[Finding]:
    """A minute of compiled steps, called at ``call`` in the loop of line 118, or in what is called there; and ten turns
    in which looks find these lines, each in ``loop`` of ``func``. ``within``: the loop of the call."""
    compiling = Compiling()
    story = compiling.story
    outer = () if within else (130,)
    compiling.call = story.line(*call, func="main", outer=outer, loops=(within, 118))
    compiling.compile("0/0", 50_000)
    calls = () if func == "main" else (call[0] - 3, *outer) if not within else (call[0],)
    loops = (loop, *((0,) * bool(outer) if func != "main" else ()), 118)
    for _ in range(10):
        for line, code in looks:
            story.emit(Look(story.now, ms * MS, story.line(line, code, func, "", calls or outer, loops), "python"))
            story.spend(ms)
        story.spend(600)
    story.finish()
    return compiling.findings("idle_gap")


def test_work_in_what_a_loop_calls_together_with_the_compiled_function_is_told() -> None:
    """One turn is a function: it looks up words, and hands them to what is compiled. No loop of its own repeats it."""
    (finding,) = turns((95, "return tagger(words)"), (52, "table[row, n] = index"), within=0, loop=51, func="look_up")
    assert (finding.place.line, finding.count, round(finding.cost_s, 1)) == (52, 10, 4.0)
    assert "waits in each turn for what is called at train.py:92" in finding.cause


def test_what_makes_the_arguments_of_a_compiled_call_is_beside_it() -> None:
    (finding,) = turns((120, "loss = fast(jitter(sound), jitter(sound))"), (30, "y = y * gain"), func="jitter")
    assert (finding.place.line, round(finding.cost_s, 1)) == (30, 4.0)
    assert "waits in each turn for what is called at train.py:120, most of it at train.py:30" in finding.cause
    assert turns((120, "loss = fast(x)"), (12, "x = x + 1"), func="forward") == [], "itself, where no version fits"
    assert turns((120, "loss = fast(x)"), (12, "x = x + 1"), func="torch_dynamo_resume_in_forward_at_11") == []


def test_a_loop_over_elements_within_the_turns_is_told_as_their_sum() -> None:
    """Its lines take a sixteenth each. A call in the loop makes it one of the turns."""
    lines = [(n, f"row[{n}] = words[{n}]") for n in (121, 122, 123)]
    (finding,) = turns((130, "loss = fast(rows)"), *lines, loop=119, ms=60)
    assert "waits in each turn for the loop of train.py:119 (for turn in turns:)" in finding.cause
    assert (finding.count, round(finding.cost_s, 1)) == (30, 1.8)
    assert turns((130, "loss = fast(rows)"), *lines, loop=110, ms=60) == [], "a loop before: the set-up"


@pytest.mark.parametrize("code", ["loss.backward()", "optimizer.step()", "clip_grad_norm_(weights, 1.0)"])
def test_a_line_of_the_turns_that_trains_is_the_programs_own_work(code: str) -> None:
    assert turns((120, "loss = fast(x)"), (124, code), loop=118) == []
    (finding,) = turns((120, "loss = fast(x)"), (124, "x = resample(x, 16_000)"), loop=118)
    assert "What is compiled waits in each turn for train.py:124 (x = resample(x, 16_000)): 4.00 s" in finding.cause


def test_what_compiled_code_calls_is_no_call_beside_it() -> None:
    compiling = Compiling()
    story = compiling.story
    compiling.call = story.line(120, "loss = fast(x)", func="main", loops=(118,))
    compiling.compile("0/0", 5000)
    inside = story.line(10, "def forward(x):", func="forward", outer=(120,), loops=(0, 118), call="loss = fast(x)")
    story.emit(Look(story.now, 4000 * MS, inside, "torch"))
    story.spend(4000)
    story.finish()
    assert compiling.findings("idle_gap") == []


def test_a_batch_is_slow_at_the_line_that_looks_found_while_it_was_drawn() -> None:
    compiling = Compiling()
    story = compiling.story
    compiling.compile("0/0", 1000)
    draws = story.line(30, "for x in loader:")
    made = story.line(40, "def __getitem__(self, i):", func="Strokes.__getitem__")
    costs = story.line(45, "sound = np.convolve(raw, design_filter(*body))", func="Strokes.__getitem__", outer=(30,))
    story.emit(Batches(story.now, draws, made, False))
    for _ in range(12):
        story.emit(DataWait(story.now, 400 * MS, draws, 1))
        story.emit(Look(story.now + 100 * MS, 90 * MS, costs, "data"))
        story.spend(450)
    story.finish()
    (finding,) = compiling.findings("idle_gap")
    assert finding.place.line == 45
    assert "which is made at train.py:45 (sound = np.convolve(raw" in finding.cause


def advised(
    *guards: Guard | tuple[Guard, ...], line: int = 61, code: str = "x = self.model(ids)", **fields: object
) -> str:
    """The advice of the one finding on a function that is compiled again for each of these."""
    compiling = Compiling()
    stack = compiling.story.line(line, code, func="forward")
    compiling.compile("0/0")
    for n, guard in enumerate(guards, 1):
        failed = guard if isinstance(guard, tuple) else (guard,)
        compiling.recompile(f"0/{n}", *(msgspec.structs.replace(one, stack=stack) for one in failed), **fields)
    compiling.story.finish()
    (finding,) = compiling.findings("recompile")
    return finding.advice


def test_adapters_that_take_turns_are_kept_by_a_limit_or_stacked() -> None:
    names = ("graves", "douro", "rioja", "mosel", "baden")
    guards = [Guard("value", "self.model.active_adapter", old, new) for old, new in itertools.pairwise(names)]
    advice = advised(*guards)
    assert "let the limit hold as many versions, knowingly" in advice
    assert "one stacked tensor" in advice
    assert advised(guards[0]).startswith("Set self.model.active_adapter before the first call, and keep it")


def test_sizes_under_static_shapes_are_marked_dynamic_first_and_few_that_were_chosen_may_stay() -> None:
    many = advised(shape(128, 97), shape(97, 61), shape(61, 45), dynamic="False")
    assert many.startswith("Mark the dimension dynamic before the first call")
    assert "without dynamic=False, which makes one graph for the first size and one for all others" in many
    assert "pad dimension 0 of x to a few sizes" in many
    pairs = [
        (shape(*went), msgspec.structs.replace(shape(*went), subject="mask"))
        for went in ((128, 97), (97, 61), (61, 45))
    ]
    together = advised(*pairs, dynamic="False")
    assert together.startswith("Compile without dynamic=False"), "one change, where several inputs change"
    assert "; or mark the dimensions dynamic before the first call, torch._dynamo.maybe_mark_dynamic(x, 0)" in together
    assert advised(shape(128, 96), shape(96, 64)).endswith("or keep these 3 sizes, each of which is compiled once.")


def test_a_rate_of_dropout_is_no_buffer() -> None:
    rates = ("0.3", "0.29", "0.28", "0.27")
    guards = [Guard("value", "self.blocks.0.dropout.p", old, new) for old, new in itertools.pairwise(rates)]
    advice = advised(*guards, code="return x + self.dropout(torch.tanh(self.conv(x)))")
    assert "buffer" not in advice
    assert "as a mask with a rate that a tensor holds (x * (torch.rand_like(x) < keep) / keep" in advice


def test_entries_of_a_dict_that_the_function_fills_are_one_finding_with_their_number() -> None:
    entries = [Guard("value", "self.by_day['monday'][0]", str(n), str(n + 1)) for n in range(1, 4)]
    advice = advised(Guard("length", "self.by_day", "0", "1"), *entries, code="keep = count / (count + 1)")
    assert advice.startswith("Let self.by_day be filled outside the compiled function")


def test_elements_of_one_list_are_one_finding_on_the_list() -> None:
    """Bids of a market, which the round before sets: one call has another first bid, the next another third."""
    guards = [Guard("value", f"bids[{n % 3}]", f"0.{n}", f"0.{n + 1}", f"bids[{n % 3}] == 0.{n}") for n in range(1, 5)]
    advice = advised(*guards, code="return (demand * torch.tensor(bids)).sum()")
    assert advice.startswith("Make one tensor of bids outside the compiled function, torch.tensor(bids), and compute")
    kept = [Guard("value", f"self.bids[{n}]", "0.5", "0.6", f"self.bids[{n}] == 0.5") for n in range(3)]
    assert "of self.bids outside the compiled function (a buffer" in advised(*kept, code="x = x * self.bids[0]")


# -- on a device: values that one trace reads, and numbers from before a read


def test_values_that_one_trace_reads_are_no_other_path() -> None:
    """Two metrics are read at the end of each epoch; the second has other operations than the first."""
    story = Story()
    barrier = story.line(20, "torch_xla.sync()", loops=(10,))
    read = story.line(31, "print(metric.compute().item())", func="report")
    loss = story.line(30, "loss.update(cross_entropy(x, y))")
    other = Change("operation", "aten::argmax", "aten::_log_softmax", "the next operation", loss, added=40, removed=52)
    for epoch in range(6):
        for _ in range(4):
            with story.step():
                story.barrier(barrier, 8, "step", 900)
        for metric, change in (("recall", None), ("loss", other)):
            story.compile(metric, 400, read, change and _against(change, 2), "read")
            story.execute(metric, 2, read, "read")
            story.read(read)
        assert epoch >= 0
    story.finish()
    assert story.findings("recompile") == []
    (compiled,) = [one for one in story.report().accounts if one.what == "compile"]
    assert compiled.reason.count("first compiled") == 1


def _against(change: Change, program: int) -> Change:
    return Change(**{**{name: getattr(change, name) for name in change.__struct_fields__}, "against": program})


@pytest.mark.parametrize("last", [30, 31])
def test_a_number_that_changed_before_a_read_makes_all_the_graphs_of_the_step(last: int) -> None:
    """Focal loss: the exponent changes; the guard reads the loss, and the barrier's graph has the exponent, too. A read
    may come between, of which the number is no part."""
    story = Story()
    barrier = story.line(40, "torch_xla.sync()", loops=(10,))
    read, power = story.line(30, "if not torch.isfinite(loss):", loops=(10,)), story.line(20, "x ** gamma", func="loss")
    between = story.line(last, "if not torch.isfinite(loss):", loops=(10,))
    for n in range(24):
        gamma, old = n // 8, n // 8 - 1
        number = Change("argument", f"{old}.5", f"{gamma}.5", "exponent of aten::pow", power, against=2 * old + 1)
        used = [f"aten::pow (exponent {one}.5)" for one in (old, gamma)]
        path = Change("operation", *used, "what is used", between, power, against=2 * old + 2)
        with story.step():
            story.trace(1)
            story.compile(f"read {gamma}", 80, read, number if gamma else None, "read", again=0)
            story.execute(f"read {gamma}", 2, read, "read")
            story.read(read)
            story.barrier(barrier, 4, f"step {gamma}", 90, change=path if gamma else None)
    story.finish()
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (20, 4)
    assert "Another path" not in finding.cause
