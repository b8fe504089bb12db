"""What is advised of jitted functions, and of what ran outside of them: by which lines, and by how much."""

from __future__ import annotations

import msgspec
import pytest
from story import MS

from xlaprof.events import ArgumentChange, Frame, JitCompile, Look, OutsideOperations, Stack

from .test_jitted import Jitted


def test_a_library_that_loops_over_leaves_is_called_by_a_function_that_is_to_be_one_program() -> None:
    """A method updates by optax beside a jitted gradient: two lines, several of optax's below one of them."""
    story = Jitted()
    of_optax = [
        ("/lib/site-packages/optax/clip.py", 12, "clip", "norm = tree.norm(updates)", 0),
        ("/lib/site-packages/optax/chain.py", 9, "update_fn", "updates = fn(updates)", 8),
    ]
    updates = "updates, state = tx.update(grads, state)"
    lines = [
        story.line(94, updates, func="Model.train", outer=(41, 90), library=(called, of_optax[1]))
        for called in (of_optax[0], (*of_optax[0][:1], 15, *of_optax[0][2:]))
    ]
    lines.append(story.line(95, "params = apply(params, updates)", func="Model.train", outer=(41, 90)))
    story.made()
    for line in lines:
        story.emit(Look(story.now, 3_000_000_000, line, "python"))
        story.spend(3_000)
        story.emit(OutsideOperations(story.now, story.text("mul"), 5_000, line))
    story.execute("step", 5, story.line(93, "loss, grads = step(params)", func="Model.train", outer=(41, 90)))
    (found,) = story.found("op_by_op")
    assert "Put what Model.train computes at line 94 and line 95 into one function under jax.jit" in found.advice
    assert "optax's own" not in found.cause
    assert [one.line for one in found.also] == [95], "each line once, whatever a library does below it"


@pytest.mark.parametrize(("run_s", "spared"), [(20, True), (200, False)])
def test_of_a_set_up_that_is_compiled_one_by_one_is_told_what_each_program_takes(run_s: int, spared: bool) -> None:
    """Thirty operations at two lines, a quarter of a second each; four at a line of flax's, which draws for a second
    each, and would in one program; and one that takes long by itself."""
    story = Jitted()
    init = (("/lib/site-packages/flax/core/scope.py", 983, "param", "value = init_fn(key)", 0),)
    draws, sorts = story.line(30, "params = model.init(key, x)", library=init), story.line(33, "order = jnp.sort(x)")
    for nth in range(35):
        start = story.now
        story.spend(250 if nth < 30 else 1_000)
        at = (story.line(20, "x = a * b"), story.line(21, "y = x + c"), draws, sorts)[
            2 + (nth == 34) if nth >= 30 else nth % 5 > 0
        ]
        story.emit(JitCompile(start, story.now - start, story.text("mul"), at))
    story.execute("step", 5, story.call)
    story.spend(run_s * 1_000 - 12_500)
    story.finish()
    (account,) = (one for one in story.report().accounts if one.what == "jax")
    assert account.total_s == pytest.approx(12.5)
    assert ("avoidable: 34 operations" in account.text) is spared
    if spared:
        assert "11.5 s, at train.py:21 (6.00 s), train.py:30 (4.00 s) and train.py:20 (1.50 s): put" in account.text
        assert (
            "under jax.jit (jax.jit(model.init)), and one program in place of many spares some 6.81 s" in account.text
        )


@pytest.mark.parametrize(("sizes", "told"), [((8, 6, 7, 10), 1), ((31, 45, 52), 2)])
def test_what_two_functions_are_given_is_padded_to_one_size_and_told_once(sizes: tuple[int, ...], told: int) -> None:
    """Batches of molecules go through the step and the evaluation, which sees some of the sizes; or through the step,
    and others, of proteins, through the evaluation."""
    story = Jitted()
    score = story.line(60, "error = score(graph, target)", outer=(90,), loops=(59,))
    code = story.line(14, "def score(graph, target):", func="score")
    trained = (8, 6, 7, 9, 5, 11, 10)
    for name, call, made, seen in (("step", story.call, story.code, trained), ("score", score, code, sizes)):
        for nth, size in enumerate(seen):
            old = f"f32[{seen[nth - 1]}]"
            changes = [ArgumentChange("shape", "target", old, f"f32[{size}]", 0)] if nth else []
            with story.step("step"):
                start = story.now
                story.spend(2_000)
                one = JitCompile(start, story.now - start, story.text(name), call, made, versions=nth, changes=changes)
                story.emit(one)
                story.execute("step", 5, call)
                story.spend(5)
    step, *others = sorted(story.found("recompile"), key=lambda one: one.place.line)
    assert "one size (11 was the largest so far), or to a few (buckets: 8, 16)" in step.advice
    assert ("step, score were compiled again" in step.cause) is (told == 1)
    assert ["one size (52 was the largest so far)" in one.advice for one in others] == [True] * (told - 1)


@pytest.mark.parametrize("by_line", [False, True])
def test_sizes_that_two_lines_have_in_turn_vary_and_those_that_one_has_before_the_other_are_leaves(
    by_line: bool,
) -> None:
    """Peaks are picked from four spectra, another number of each; or two lines go over the four vectors of a model."""
    story = Jitted()
    lines = [story.line(70, "near = peaks[keep]", func="pick"), story.line(71, "width = near - mean", func="pick")]
    sizes = (64, 21, 35, 9, 17)
    turns = [(line, at) for at in range(5) for line in lines]
    for line, at in sorted(turns, key=lambda turn: lines.index(turn[0])) if by_line else turns:
        changes = [ArgumentChange("shape", "x", f"f32[{sizes[at - 1]},2]", f"f32[{sizes[at]},2]", 0)] if at else []
        start = story.now
        story.spend(300)
        story.emit(JitCompile(start, story.now - start, story.text("sub"), line, versions=at, changes=changes))
    story.execute("step", 5, story.call)
    found = story.found("recompile")
    assert [one.count for one in found] == [8] * (not by_line)
    for one in found:
        assert "jax.device_get, and go on with NumPy" in one.advice
        assert "no jitted function can do it" in one.advice


@pytest.mark.parametrize(("turns", "static"), [("hops", "static_argnames='hops'"), ("8", "static_argnames=...")])
def test_a_number_of_turns_is_named_as_static_where_the_function_around_a_scan_is_to_be_jitted(
    turns: str, static: str
) -> None:
    story = Jitted()
    line = story.line(70, f"return jax.lax.scan(hop, heat, None, length={turns})", func="relax", outer=(90,))
    for nth in range(5):
        start = story.now
        story.spend(300)
        changes = [ArgumentChange("parameter")] if nth else []
        story.emit(JitCompile(start, story.now - start, story.text("scan"), line, versions=nth, changes=changes))
    story.execute("step", 5, story.call)
    (found,) = story.found("recompile")
    assert found.advice.startswith("Put relax under jax.jit")
    assert static in found.advice


def test_an_optimizer_that_is_made_anew_is_one_cause_for_the_step_that_holds_it_and_for_its_own_functions() -> None:
    """Each fold has an optimizer: the step that has it by its closure is compiled again, and so is ``tx.init``."""
    story = Jitted()
    init = story.line(36, "state = jax.jit(tx.init)(params)", outer=(90,))
    code = story.line(70, "def init_fn(params):", func="momentum.<locals>.init_fn")
    held = ArgumentChange("anew", "tx.init", "momentum.<locals>.init_fn", "momentum.<locals>.init_fn")
    for fold in range(4):
        start = story.now
        story.spend(100)
        again = [ArgumentChange("function")] if fold else []
        name = story.text("init_fn")
        story.emit(JitCompile(start, story.now - start, name, init, code, versions=fold, changes=again))
        story.made(*again, *[held] * bool(fold), versions=fold)
    story.execute("step", 5, story.call)
    (found,) = story.found("recompile")
    assert found.count == 6
    assert "(what it holds differs: another tx)" in found.cause
    assert found.advice.startswith("Make tx once, outside of the loop, and call jax.jit on what holds it once")
    assert "optax.inject_hyperparams" in found.advice


def test_a_loop_that_two_programs_hold_is_one_finding_that_names_both() -> None:
    """A recurrent cell goes over the frames in Python, within the update and within the scoring by itself."""
    story = Jitted()
    cell = story.line(24, "h = jnp.tanh(x @ w + h @ u)", func="encode", outer=(89,), loops=(0, 22))
    for name, seconds, ops, turns in (("score", 4, 2_000, 60), ("update", 12, 5_000, 59)):
        start, call = story.now, story.line(50 + seconds, f"y = {name}(clip)")
        story.spend(seconds * 1_000)
        made = JitCompile(start, story.now - start, story.text(name), call, ops=ops, turns=turns, loop=cell)
        story.emit(msgspec.structs.replace(made, loop_ops=ops))
    story.spend(20_000)
    story.finish()
    (found,) = story.findings("unrolled_loop")
    assert (found.place.line, found.count) == (22, 2)
    assert found.cost_s == pytest.approx(4 * 59 / 60 + 12 * 58 / 59)
    assert "update and score are programs of 7,000 operations in all: in the loop of train.py:22" in found.cause
    assert "line 24 is traced up to 60 times in each" in found.cause
    assert "Compiling took 16.0 s" in found.cause
    assert [one.line for one in found.also] == [62, 54, 24]
    assert any(one.startswith("score: ") for one in found.evidence)


@pytest.mark.parametrize(("in_turn", "found"), [(True, 1), (False, 2)])
def test_functions_that_one_call_makes_anew_are_one_cause_and_are_to_be_defined_outside_of_it(
    in_turn: bool, found: int
) -> None:
    """Each site's calibration defines a residual, and the two jitted functions that call it; or one loop after another
    in it defines each."""
    story = Jitted()
    names = ("polish", "warm_start")
    codes = [
        story.line(at, f"def {name}(gains):", func=f"calibrate.<locals>.{name}") for at, name in enumerate(names, 12)
    ]
    lines = [story.line(at, f"gains = {name}(gains)", func="calibrate") for at, name in enumerate(names, 22)]
    residual = "calibrate.<locals>.residual"
    turns = [(site, which) for site in range(5) for which in (0, 1)]
    for site, which in turns if in_turn else sorted(turns, key=lambda turn: turn[1]):
        start, name = story.now, story.text(names[which])
        story.spend(900 - 200 * which)
        changes = [ArgumentChange("function"), ArgumentChange("anew", "residual", residual, residual)] * bool(site)
        took = story.now - start
        story.emit(JitCompile(start, took, name, lines[which], codes[which], versions=site, changes=changes))
        story.execute(names[which], 5, lines[which])
    causes = story.found("recompile")
    assert len(causes) == found
    for one in causes:
        assert one.advice.startswith("Define polish" if one.count != 4 else "Define ")
        assert "residual once, outside of calibrate, which makes them anew again and again" in one.advice
        assert "Make residual once" not in one.advice
    if in_turn:
        assert "which calibrate makes (what it holds differs: another residual)" in causes[0].cause
        assert "polish, warm_start were compiled again 8 times" in causes[0].cause
        assert causes[0].cost_s == pytest.approx(4 * 0.9 + 4 * 0.7)


@pytest.mark.parametrize(
    ("device_ms", "own", "cost_s"), [(1, False, 1.9), (12, False, 0.8), (18, False, 0), (18, True, 2.0)]
)
def test_what_the_device_hides_is_not_gained(device_ms: int, own: bool, cost_s: float) -> None:
    """Rewards are shaped operation by operation, 10 of a turn's 20 ms, while the device trains: what it is busy with
    the host would wait for. What it is busy with these operations themselves, each for a moment, hides nothing."""
    story = Jitted()
    line = story.line(30, "reward = jnp.tanh(reward) * scale", func="shaped", outer=(52,), loops=(0, 50))
    story.made()
    for turn in range(200):
        for _ in range(5 * device_ms if own else 1):
            story.execute("tanh" if own else "step", 0.2 if own else device_ms, line if own else story.call)
        story.spend(20)
        if turn % 10 == 0:
            story.emit(Look(story.now, 100_000_000, line, "python"))
    story.emit(OutsideOperations(story.now, story.text("tanh"), 400, line))
    found = story.found("op_by_op")
    assert [round(one.cost_s, 1) for one in found] == [cost_s] * (cost_s > 0)
    for one in found:
        assert one.gain_s == one.cost_s
        assert one.confidence == ("high" if cost_s > 1 else "medium")
        assert ("of that the device had other work" in one.cause) is (device_ms == 12)


_UNDER_EQUINOX = ("/env/site-packages/equinox/_jit.py", 210, "__call__", "return _call(self, False, args, kwargs)", 0)
_UNDER_NNX = ("/env/site-packages/flax/nnx/transforms/compilation.py", 320, "__call__", "out = self.jitted(*args)", 0)


@pytest.mark.parametrize(
    ("code", "library", "told"),
    [
        ("heights = np.array([float(probe(tide, buoy)) for buoy in buoys])", (), True),
        ("heights = np.array([float(probe(tide, buoy)) for buoy in buoys])", (_UNDER_EQUINOX,), True),
        ("heights = np.array([float(probe(tide, buoy)) for buoy in buoys])", (_UNDER_NNX,), False),
        ("heights = [float((tide := probe(tide, buoy))[0]) for buoy in buoys]", (), False),
        ("heights = list(map(float, (probe(tide, buoy) for buoy in buoys)))", (), True),
        ("tide = probe(tide, [buoy.at(hour) for buoy in buoys])", (), False),
        ("heights.append(probe(tide, buoy))", (), False),
    ],
)
def test_what_a_comprehension_calls_one_by_one_is_one_call_of_vmap(
    code: str, library: tuple[tuple[str, int, str, str, int], ...], told: bool
) -> None:
    """300 short programs, each handed over in 5 ms: of another loop than a comprehension nobody knows what its turns
    need of each other, and a function of flax.nnx's writes into the model that the next turn is given."""
    story = Jitted()
    call = story.line(60, code, func="survey", outer=(90,), library=library)
    probe = story.line(14, "def probe(tide, buoy):", func="probe")
    story.emit(JitCompile(story.now, 200 * MS, story.text("probe"), call, probe))
    story.spend(200)
    for _ in range(300):
        story.execute("probe", 0.2, call)
        story.emit(Look(story.now, 5 * MS, call, "python"))
        story.spend(5)
    found = story.found("op_by_op")
    assert [one.place.line for one in found] == [60] * told
    for one in found:
        assert one.advice.startswith("Call probe once for all that the comprehension at train.py:60 goes through")
        assert "Of the rest" not in one.advice
        assert one.count == 300
        assert one.cost_s == pytest.approx(1.25, rel=0.02), "without the compilation, and what the device hides"


@pytest.mark.parametrize("selects", [False, True])
def test_a_loop_that_selects_is_jitted_up_to_there(selects: bool) -> None:
    """Candidates are scored operation by operation; where those that passed are then selected, no jitted body can."""
    story = Jitted()
    scores = story.line(30, "passed = jnp.exp(score(pool)) > limit", func="search", outer=(90,), loops=(28,))
    chosen = story.line(31, "kept = pool[passed]", func="search", outer=(90,), loops=(28,))
    story.made()
    for nth in range(12):
        if selects:
            change = ArgumentChange("shape", "args[0]", f"i32[{7 + nth * nth}]", f"i32[{7 + (nth + 1) ** 2}]", 0)
            changes = [change] if nth else []
            story.emit(JitCompile(story.now, 90 * MS, story.text("gather"), chosen, versions=nth, changes=changes))
            story.spend(90)
        with story.step("step"):
            story.emit(Look(story.now, 200 * MS, scores, "python"))
            story.spend(200)
            story.emit(OutsideOperations(story.now, story.text("exp"), 40, scores))
            story.execute("step", 5, story.call)
            story.spend(5)
    (found,) = story.found("op_by_op")
    assert ("Put what search computes at line 30 into one function" in found.advice) is selects
    assert ("Put the body of the loop" in found.advice) is not selects
    assert ("jax.lax.scan" in found.advice) is not selects


@pytest.mark.parametrize(("kind", "counted"), [("parameter", 30), ("dtype", 20)])
def test_a_slice_as_long_as_what_is_computed_of_it_goes_along_with_that(kind: str, counted: int) -> None:
    """The roughness of a profile within ever shorter windows: which length a slice has is no size of its argument."""
    story = Jitted()
    sliced = story.line(30, "window = heights[start:stop]", func="roughness", loops=(29,))
    powered = story.line(31, "rough.append((window**2).mean())", func="roughness", loops=(29,))
    for turn in range(11):
        for name, line in (("dynamic_slice", sliced), ("square", powered), ("_mean", powered)):
            sizes = [f"f32[{200 - turn + n}]" for n in (1, 0)]
            change = ArgumentChange(kind) if line == sliced else ArgumentChange("shape", "x", *sizes, 0)
            start = story.now
            story.spend(80)
            changes = [change] * bool(turn)
            story.emit(JitCompile(start, story.now - start, story.text(name), line, versions=turn, changes=changes))
            story.execute(name, 1, line)
    (found,) = story.found("recompile")
    assert (found.place.line, found.count) == (31, counted)
    assert found.cost_s == pytest.approx(0.08 * counted)
    assert ("dynamic_slice" in found.cause) is (counted == 30)


def test_operations_that_were_compiled_one_by_one_are_told_by_the_calls_that_one_program_can_be() -> None:
    """A sketch is drawn by a helper before the training, and its quality judged by another one behind it."""
    story = Jitted()
    drawn = story.line(20, "x = a * b", func="layer", outer=(85,), call="sketch = layer(a, b)")
    judged = [story.line(n, "y = y + c", func="quality", outer=(97,), call="print(quality(y))") for n in (24, 25)]
    for line, ms in ((drawn, 200), *((one, 300) for one in judged)):
        for _ in range(8):
            start = story.now
            story.spend(ms)
            story.emit(JitCompile(start, story.now - start, story.text("mul"), line))
    story.made()
    story.execute("step", 5, story.call)
    story.spend(2_000)
    story.finish()
    (account,) = (one for one in story.report().accounts if one.what == "jax")
    assert "at train.py:97 (4.80 s) and train.py:85 (1.60 s): put what such a line does into one" in account.text
    assert "set-up" not in account.text


def set_up_and_steps(story: Jitted, made: int, name: str, count: int, seen: int = 0, each_ms: float = 0.0) -> None:
    """Four seconds in which the line ``made`` runs ``count`` operations one by one; then 300 steps, each with
    ``each_ms`` of the host's at the line ``seen``."""
    for _ in range(40):
        story.execute(name, 0.1, made)
        story.emit(Look(story.now, 100 * MS, made, "python"))
        story.spend(100)
    story.emit(OutsideOperations(story.now, story.text(name), count, made))
    for turn in range(300):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 0.1, story.call)
            story.spend(each_ms + 1)
            if seen:
                story.emit(Look(story.now, int(each_ms * MS), seen, "python"))


@pytest.mark.parametrize("each_ms", [0.5, 10])
def test_what_is_told_of_a_loop_is_of_the_loop_and_not_of_the_set_up_before_it(each_ms: float) -> None:
    """``main`` makes the tables of a codec for 4 s, operation by operation, and then goes over its frames: two more
    operations at the line behind the call."""
    story = Jitted()
    table = story.line(21, "tables = codec.tables(rates)", func="main", library=(_UNDER_EQUINOX,))
    mean = story.line(41, "loudness = loudness * 0.9 + frame.mean()", func="main", loops=(38,))
    story.call = story.line(40, "state, frame = step(state, chunk)", func="main", loops=(38,))
    set_up_and_steps(story, table, "tanh", 400, mean, each_ms)
    story.emit(OutsideOperations(story.now, story.text("mul"), 600, mean))
    found = story.found("op_by_op")
    assert [one.place.line for one in found] == [41] * (each_ms > 5)
    for one in found:
        assert one.gain_s is not None
        assert 2.5 < one.gain_s <= 3
        assert "main runs 600 operations (mul) outside of any jitted function, 2 in a step" in one.cause
        assert "the body of the loop at line 38" in one.advice


@pytest.mark.parametrize(("turns", "told"), [(40, False), (4, True)])
def test_a_read_behind_many_turns_of_the_loop_is_the_programs_log(turns: int, told: bool) -> None:
    """A loss at the end of an epoch waits for work that has to be done; after a few turns it holds up the next ones."""
    story = Jitted()
    read = story.line(44, 'print("epoch", float(mean(losses)))', outer=(90,), loops=(36,))
    story.made()
    for turn in range(240):
        with story.step("step"):
            story.execute("step", 10, story.call)
            story.spend(2)
            if turn % turns == turns - 1:
                story.read(read, "jax.Array: one number")
                story.spend(60)
    assert bool(story.found("transfer")) is told


def _read_in_each_turn(story: Jitted, read: int, spent: float) -> None:
    """240 turns with a program, a read, and the host's ``spent`` ms behind it."""
    for turn in range(240):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 10, story.call)
            story.spend(2)
            story.read(read, "jax.Array: one number")
            story.spend(spent)


@pytest.mark.parametrize(("spent", "told"), [(2, False), (8, True)])
def test_what_calls_a_function_back_was_chosen_and_needs_its_value(spent: float, told: bool) -> None:
    """SciPy's search evaluates on the device: told where the waits are a quarter of the run, with what spares them."""
    story = Jitted()
    search = ("best = minimize(misfit, start)",)
    read = story.line(44, "return float(value)", func="fit.<locals>.misfit", outer=(90,), loops=(0, 88), takers=search)
    _read_in_each_turn(story, read, spent)
    found = story.found("transfer")
    assert bool(found) is told
    if found:
        assert "a search that runs on the device itself" in found[0].advice


@pytest.mark.parametrize(("spent", "told"), [(2, False), (8, True)])
def test_what_is_looked_up_in_a_table_of_texts_is_needed_on_the_host(spent: float, told: bool) -> None:
    """Notes are drawn one after the other until the final bar, by their names."""
    story = Jitted()
    ends = ('if NAMES[note] == "|": break',)
    read = story.line(44, "note = int(draw(melody))", func="compose", loops=(40,), takers=ends)
    _read_in_each_turn(story, read, spent)
    found = story.found("transfer")
    assert bool(found) is told
    if found:
        assert "with a batch of texts that grow at a time" in found[0].advice
        assert "Index on the device" not in found[0].advice


@pytest.mark.parametrize(("every", "told"), [(1, True), (8, False)])
def test_a_read_that_comes_every_so_many_turns_is_not_advised_to_come_every_so_many(every: int, told: bool) -> None:
    """A relaxation that looks at its residual, and stops when that is small."""
    story = Jitted()
    ends = ("if residual < tolerance: break",)
    read = story.line(44, "residual = float(norm(field))", outer=(90,), loops=(38,), takers=ends)
    for turn in range(240):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 10, story.call)
            story.spend(2)
            if turn % every == every - 1:
                story.read(read, "jax.Array: one number")
                story.spend(8)
    (found,) = story.found("transfer")
    assert ("test the condition only every 10 turns" in found.advice) is told
    assert "Run a fixed number of turns" in found.advice


@pytest.mark.parametrize(
    ("sizes", "turns", "found"),
    [((32, 64, 150), 60, 0), ((32, 64, 150), 20, 1), ((32, 61, 150), 60, 1), ((150, 64, 32, 96), 60, 0)],
)
def test_the_largest_of_sizes_to_pad_to_is_as_long_as_the_longest(
    sizes: tuple[int, ...], turns: int, found: int
) -> None:
    """Reports are padded to one of a few lengths before they are sorted into topics; the longest decides the last."""
    story, shape = Jitted(), "i32[64,{}]".format
    for turn in range(turns):
        with story.step("step"):
            if turn == 0:
                story.made(ms=3_000)
            elif turn % 4 == 0 and turn // 4 < len(sizes):
                old, new = (shape(size) for size in sizes[turn // 4 - 1 : turn // 4 + 1])
                story.made(ArgumentChange("shape", "words", old, new, 1), ms=3_000, versions=turn // 4)
            story.execute("step", 5, story.call)
            story.spend(20)
    assert len(story.found("recompile")) == found


@pytest.mark.parametrize("listed", [False, True])
def test_layers_that_are_made_before_a_loop_are_none_of_its_turns(listed: bool) -> None:
    """A program at module level makes its layers in a comprehension of its own, or in that of a class that a library
    calls, for 4 s, and then trains them: its loop runs two small operations beside the jitted step."""
    story, main = Jitted(), {"func": "<module>"}
    layers = story.line(21, "layers = [dense(one) for one in keys]", library=(_UNDER_EQUINOX,), **main)
    if not listed:
        path = (12, "self.layers = [dense(one) for one in keys]", "Speller.__init__"), (21, "net = Speller(keys)", "")
        (line, code, func), (caller, call, _) = path
        where, lib = story.text(story.file), story.text("/venv/equinox/_module.py")
        frames = [
            Frame(where, line, story.text(func), story.text(code)),
            Frame(where, caller, story.text("<module>"), story.text(call)),
        ]
        layers = 9_000
        between = Frame(lib, 300, story.text("__call__"), story.text("init(self, *args)"))
        story.put(Stack(id=layers, frames=frames, library=[between], depths=[1]))
    drawn = story.line(39, "key, sub = random.split(key)", loops=(38,), **main)
    mean = story.line(41, "mean = mean * 0.9 + loss", loops=(38,), **main)
    story.call = story.line(40, "state, loss = step(state, sub)", loops=(38,), **main)
    set_up_and_steps(story, layers, "uniform", 40)
    story.emit(OutsideOperations(story.now, story.text("threefry_split"), 300, drawn))
    story.emit(OutsideOperations(story.now, story.text("mul"), 600, mean))
    assert story.found("op_by_op") == []
