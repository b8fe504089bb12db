"""Tensors of several shapes: which are design, which are a mistake, and what is said of those."""

from __future__ import annotations

import pytest
from story import Story

from xlaprof.events import Batches, Block, Change, Difference, GraphDiff, Loop, Operation


def sizes(lengths: list[int], axis: int = 1, compile: float = 500) -> Story:
    """Batches of these sizes, one dimension of which changes; milliseconds of each compile."""
    story = Story()
    barrier, move = story.line(40, "xr.sync()"), story.line(35, "ids = ids.to(device)")
    seen: dict[int, int] = {}
    before = lengths[0]
    for n in lengths:
        old, new = (f"s64[4,{x}]" if axis else f"s64[{x},4]" for x in (before, n))
        change = Change(
            "shape", old, new, "input of aten::embedding", made=move, moved=True, against=seen.get(before, 0)
        )
        with story.step():
            story.trace(1)
            story.barrier(barrier, 8, f"length {n}", compile, change if seen and n not in seen else None)
            story.spend(8)
        seen.setdefault(n, len(seen) + 1)
        before = n
    story.finish()
    return story


def test_every_size_is_told_with_its_count_at_the_line_that_brought_the_tensor() -> None:
    (finding,) = sizes([12, 17, 12, 9, 12, 17]).findings("recompile")
    assert (finding.place.line, finding.count, finding.confidence) == (35, 2, "high")
    assert finding.values == (("12", 3), ("17", 2), ("9", 1))
    assert "ids (brought to the device at train.py:35)" in finding.cause
    assert "(dimension 1)" in finding.cause
    assert finding.buckets[0].edges == (17,)
    assert "torch.nn.functional.pad(ids, (0, size - ids.shape[1]))" in finding.remedy


def test_the_largest_of_a_few_batches_is_not_told_as_the_largest_there_is() -> None:
    """Where most sizes came once, and the largest was not the first, what comes next may be larger."""
    (finding,) = sizes([33, 40, 38, 36, 26, 62]).findings("recompile")
    assert "pad to the most that the data and the model (its positions) allow" in finding.advice
    assert "in place of 62, and never beyond it" in finding.advice
    for known in ([62, 40, 38, 36, 33, 26], [33, 40, 38, 62, 36] * 2):
        (finding,) = sizes(known).findings("recompile")
        assert "allow" not in finding.advice, known


def test_a_few_sizes_that_come_back_often_are_padding_on_purpose() -> None:
    for few in ([16, 8, 32], [10, 30, 20], [4, 2, 8], [24, 48]):
        shuffled = [*few, *few[::-1]] * 4
        assert sizes(shuffled).findings("recompile") == [], few
    assert sizes([10, 35, 20, 35, 10, 20, 35]).findings("recompile"), "they may have come back by chance"
    assert sizes([12, 17, 9] * 4).findings("recompile"), "and so may these: each ran four times in all"
    rising = [size for size in range(10, 20) for _ in range(2)]
    (finding,) = sizes([10, 11, *rising, 10, 11, 12]).findings("recompile")
    assert finding.count == 9  # new sizes go on coming


def test_sizes_that_nobody_chose_are_a_finding_however_often_they_come_back_if_compiling_them_is_dear() -> None:
    """A data set of five meshes has five numbers of faces, in every epoch the same."""
    faces = [211, 198, 225, 204, 219]
    epochs = [*faces, *faces[::-1]] * 8
    (finding,) = sizes(epochs).findings("recompile")
    assert (finding.count, finding.cost_s) == (4, pytest.approx(2.0))
    assert finding.gain_s > 1.9
    assert "Dimension 1 took 5 sizes from 198 to 225: pad it to 225" in finding.advice
    assert sizes(epochs, compile=20).findings("recompile") == [], "a few hundredths of the run"
    assert sizes([*range(208, 288, 16)] * 16).findings("recompile") == [], "buckets of 16"


def test_loops_over_what_one_function_collates_and_what_is_computed_of_it_are_one_cause() -> None:
    """Training and validation draw clips of any length; a read cuts the training step, so what it computed before that
    is an input of the graph behind it, as long as the clip."""
    story = Story()
    made = story.line(12, "longest = max(clip.shape[0] for clip in clips)", func="collate")
    hidden = story.line(36, "hidden = encoder(clip)", loops=(33,))
    loops = []
    for head in (33, 53):
        story.emit(Batches(story.now, story.line(head, "for clip in loader:", loops=(head,)), made))
        move = story.line(head + 2, "clip = clip.to(device)", loops=(head,))
        loops.append([(story.line(head + 7, "xr.sync()", loops=(head,)), move, True, "f32[{},8]")])
    loops[0].append((story.line(39, "xr.sync()", loops=(33,)), hidden, False, "f32[{},16]"))
    for parts, lengths in zip(loops, ([31, 40, 37, 52, 33], [40, 29, 47, 31]), strict=True):
        for before, n in zip([lengths[0], *lengths], lengths, strict=False):
            with story.step():
                for barrier, line, moved, shape in parts:
                    old, new = shape.format(before), shape.format(n)
                    change = Change("shape", old, new, "self", made=line, moved=moved, against=1)
                    story.barrier(barrier, 8, f"{barrier} {n}", 500, change if n != before else None)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (35, 4 + 4 + 3)
    assert "Sizes vary together" not in finding.cause
    assert "Do that where collate makes the batch (train.py:12)." in finding.advice


def test_sizes_that_somebody_chose_are_told_where_they_take_seconds_and_a_large_share_of_the_run() -> None:
    """Spectrograms cut to 64, 96 or 128 frames, drawn for each batch: 8 s each to compile, in a run of 23 s."""
    frames = [64, 96, 128, 96, 64, 128] * 10
    (finding,) = sizes(frames, compile=8000).findings("recompile")
    assert (finding.count, finding.cost_s) == (2, pytest.approx(16))
    assert "pad it to 128" in finding.advice
    assert "Where they are meant, have fewer of them" in finding.advice
    assert sizes(frames, compile=2000).findings("recompile") == [], "of so short a run anything is a large share"
    assert sizes(frames * 90, compile=8000).findings("recompile") == [], "in this run they pay"


def test_sizes_of_which_each_is_twice_the_one_before_are_buckets_whatever_they_cost() -> None:
    """Sentences padded to 32, 64 or 128 tokens; the validation's batches meet each size once or twice."""
    tokens = [64, 32, 128, 32, 128, 64] * 3
    assert sizes(tokens, compile=8000).findings("recompile") == []
    assert sizes([64, 32, 128], compile=8000).findings("recompile"), "none came back: it may be chance"

    def with_validation(lengths: list[int]) -> list[int]:
        story = sizes(tokens, compile=8000)
        barrier, move = story.line(60, "xr.sync()"), story.line(55, "ids = ids.to(device)")
        for before, n in zip([lengths[0], *lengths], lengths, strict=False):
            change = Change("shape", f"s64[8,{before}]", f"s64[8,{n}]", "self", made=move, moved=True, against=11)
            with story.step():
                story.barrier(barrier, 8, f"validation {n}", 3000, change if n != before else None)
        return [one.place.line for one in story.findings("recompile")]

    assert with_validation([128, 32, 64]) == []
    assert with_validation([128, 32, 57]) == [55], "nobody chose that one"


def test_rows_of_words_that_are_one_longer_than_their_targets_are_chosen_as_well() -> None:
    """Buckets of 24, 32 and 48 targets, of which each row has a word more."""
    words = [33, 49, 25, 49, 25, 33] * 10
    assert sizes(words, compile=2000).findings("recompile") == []
    assert sizes([n + n // 33 for n in words], compile=2000).findings("recompile"), "34, 50 and 25 are by chance"


def test_widths_that_share_a_budget_are_chosen_as_the_rows_of_each_follow_from_it() -> None:
    """Utterances in three widths of frames, each batch with as many rows as 2,400 frames have room for."""

    def utterances(shapes: list[tuple[int, int]], compile: float = 8000) -> list[tuple[int, bool]]:
        story = Story()
        barrier, move = story.line(40, "xr.sync()"), story.line(35, "frames = frames.to(device)")
        seen: dict[tuple[int, int], int] = {}
        before = shapes[0]
        for shape in shapes:
            old, new = (f"f32[{rows},{width},13]" for rows, width in (before, shape))
            change = Change("shape", old, new, "self", made=move, moved=True, against=seen.get(before, 0))
            with story.step():
                story.barrier(barrier, 8, f"{shape}", compile, change if seen and shape not in seen else None)
                story.spend(8)
            seen.setdefault(shape, len(seen) + 1)
            before = shape
        story.finish()
        return [(one.count, "Sizes vary together" in one.cause) for one in story.findings("recompile")]

    three = [(7, 320), (25, 96), (15, 160)]
    assert utterances([*three, *three[::-1]] * 8) == [], "one size of all would be three times the work"
    assert utterances(three) == [(2, True)], "none came back: it may be chance"
    assert utterances([(7, 320), (25, 90), (4, 161)] * 16) == [(2, True)], "nobody chose those"
    assert utterances([(7, 320), (9, 96), (4, 160)] * 16) == [(2, True)], "no budget: padding all pays"
    assert utterances([(7, 320), (9, 96), (4, 160)] * 16, compile=150) == [], "rows that follow from a chosen width"
    late = [(2400 // width, width) for width in range(72, 136, 8)]
    assert utterances([*three * 10, *late]) == [(9, True)], "new ones go on coming"


def test_the_passes_of_a_loop_over_a_tensor_of_the_batch_are_its_size() -> None:
    """Frames of a clip, 3 to 7 of them; once only the loop over them is new, for its size was the first graph's."""
    story = Story()
    barrier, move = story.line(60, "xr.sync()"), story.line(55, "clip = clip.to(device)")
    loop = story.line(21, "for t in range(clip.shape[1]):")
    seen: list[int] = []
    for frames in [5, 3, 7, 5, 6, 4] * 6:
        before = seen[-1] if seen else 0
        size = Difference("shape", f"f32[8,{before}]", f"f32[8,{frames}]", "self", made=move, moved=True)
        select = Operation("aten::select", loop)
        block = Block(new=[select], added=2, roles={"": 2}, stack=loop)
        another = Difference("operation", "aten::cat", "aten::select", came=select, block=block)
        turns = Loop(loop, before, frames, agreeing=2, differing=2)
        with story.step():
            again = bool(seen) and frames not in seen[1:]
            diff = GraphDiff(len(seen), added=2, differences=[size, another], loop=turns)
            diff = diff if len(seen) > 1 else GraphDiff(1, differences=[size])
            story.barrier(barrier, 8, f"{frames} frames {len(seen) > 0}", change=diff if again else None)
            story.spend(8)
        if again or not seen:
            seen.append(frames)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (55, 5)
    assert "pad it to 7" in finding.advice
    assert 21 in [place.line for place in finding.also]


def test_a_prompt_before_its_tokens_is_no_mistake() -> None:
    assert sizes(([16] + [1] * 7) * 4).findings("recompile") == []
    assert sizes(([1] + [16] * 7) * 4).findings("recompile"), "a smaller one at regular intervals is what was left over"


def test_a_last_batch_is_one_even_where_its_size_is_a_round_one() -> None:
    for loader, advice in ((True, "pass drop_last=True to the DataLoader"), (False, "leave it out")):
        story = sizes([32, 32, 32, 8, 32, 32, 32, 8], axis=0)
        if loader:
            story.data(0.1, story.line(33, "for ids in loader:"))
        (finding,) = story.findings("recompile")
        assert finding.advice == f"Pad the last batch to 32 or {advice}."
        assert ("DataLoader" in finding.remedy) is loader


def test_a_smaller_size_that_comes_at_no_regular_intervals_is_no_last_batch() -> None:
    """Clouds of points are padded to 96 or to 160, whatever the rest of their batch needs."""
    clouds = [n for gap in (3, 9, 1, 14, 6, 2, 11, 5, 8, 4) for n in ([160] * gap + [96])]
    assert sizes([160, *clouds], axis=0).findings("recompile") == [], "two sizes that somebody chose"
    (finding,) = sizes([n - 3 for n in (160, *clouds)], axis=0).findings("recompile")
    assert "Pad dimension 0 to 157" in finding.advice
    assert "last batch" not in finding.advice


def test_two_batch_sizes_that_were_warmed_up_are_padding_too() -> None:
    assert sizes([8, 16, 8, 16, 16, 8, 8, 16], axis=0).findings("recompile") == []


def test_a_size_for_each_of_a_few_stages_is_worth_its_compile() -> None:
    assert sizes([10] * 20 + [20] * 20, axis=0).findings("recompile") == []
    assert sizes([8] * 30 + [12] * 30 + [16] * 30).findings("recompile") == []
    assert sizes([10] * 30 + [13] * 30 + [17] * 30, compile=20).findings("recompile") == []
    for lengths in (
        [10] * 20 + [20] * 19,  # or else it is the last batches'
        [10] * 5 + [20] * 40,
        [10] * 30 + [13] * 30 + [17] * 30,  # nobody chose them, and they are compiled for most of the run
        [n for size in (8, 16, 24, 32) for n in [size] * 20],  # the more there are, the longer each has to run
    ):
        assert sizes(lengths).findings("recompile"), lengths


def warmed_up(advance: list[str], served: list[str]) -> Story:
    """Graphs made in advance at a barrier of their own, and those of the requests that follow."""
    story = Story()
    warm, serve = story.line(19, "torch_xla.sync()", outer=(24,)), story.line(19, "torch_xla.sync()", outer=(28,))
    move = story.line(18, "x = x.to(device)")
    seen: dict[str, int] = {}
    for barrier, shapes in ((warm, advance), (serve, served)):
        for shape in shapes:
            change = Change("shape", advance[0], shape, "input of aten::mm", made=move, moved=True, against=1)
            story.barrier(barrier, 8, f"graph {shape}", change=change if seen and shape not in seen else None)
            story.spend(8)
            seen.setdefault(shape, len(seen) + 1)
    story.finish()
    return story


def test_graphs_that_are_made_in_advance_are_no_mistake() -> None:
    served = ["f32[4,40]", "f32[15,40]", "f32[15,40]", "f32[4,40]"] * 4
    assert warmed_up(["f32[4,40]", "f32[15,40]"], served).findings("recompile") == []
    (finding,) = warmed_up(["f32[4,40]", "f32[15,40]"], [*served, "f32[7,40]", "f32[9,40]"]).findings("recompile")
    assert (finding.count, finding.place.line) == (1, 18)  # the first at a barrier is none
    assert warmed_up(["f32[4,40]", "f32[15,40]"], ["f32[4,40]"] * 9).findings("recompile"), "for what comes never"


def test_what_takes_its_shape_from_a_tensor_that_was_brought_is_no_cause_of_its_own() -> None:
    story = Story()
    barrier, made = story.line(40, "xm.mark_step()"), story.line(21, "self.a = nn.Parameter(a.to(device))")
    update = story.line(36, "layer.a.sub_(grad, alpha=0.1)")
    for n in range(20):
        rank, began = 2 + n // 5, n % 5 == 0
        shapes = (f"f32[16,{rank - 1}]", f"f32[16,{rank}]")
        change = Change("shape", *shapes, "input of aten::mm", made=made if began else update, moved=began, against=1)
        with story.step():
            story.barrier(barrier, 8, f"rank {rank} {'new' if began else 'updated'}", change=change if n > 4 else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (21, 6)


def test_a_smaller_batch_that_comes_more_often_is_not_the_last_one() -> None:
    (finding,) = sizes([5, 3, 3, 5, 3, 3, 3, 5], axis=0).findings("recompile")
    assert "drop_last" not in finding.advice
    assert "Pad dimension 0 to 5" in finding.advice


def test_a_size_that_rises_step_by_step_is_no_padding() -> None:
    (finding,) = sizes([8, 8, 16, 16, 24, 24]).findings("recompile")
    assert finding.count == 2


def test_what_grows_is_allocated_for_one_more_than_was_seen() -> None:
    story = Story()
    barrier, grown = story.line(40, "xr.sync()"), story.line(35, "keys = torch.cat([keys, new], 1)")
    for n in range(4, 10):
        change = Change("shape", f"f32[4,{n - 1}]", f"f32[4,{n}]", "input of aten::cat", made=grown, against=n - 4)
        with story.step():
            story.barrier(barrier, 8, f"length {n}", change=change if n > 4 else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert "10 at least" in finding.advice, "the tensor of 9 was made longer as well"


def heads(tasks: int) -> Story:
    """A loop that trains a head of its own for each task, in turns."""
    story = Story()
    barrier, line = story.line(23, "torch_xla.sync()"), story.line(18, "out = heads[task](body(x))")
    for n in range(6 * tasks):
        task = n % tasks
        other = Change(
            "shape", f"f32[{task},32]", f"f32[{task + 1},32]", "input of aten::t", line, line, name="Linear.weight",
            against=task,
        )  # fmt: skip
        with story.step():
            story.barrier(barrier, 8, f"task {task}", change=other if 0 < n < tasks else None)
            story.spend(8)
    story.finish()
    return story


def test_modules_that_take_turns_have_a_graph_each_unless_there_are_many() -> None:
    assert heads(3).findings("recompile") == []
    (finding,) = heads(9).findings("recompile")
    assert (finding.place.line, finding.count) == (18, 8)


def test_lengths_of_source_and_target_are_one_finding_that_pads_both() -> None:
    story = Story()
    barrier = story.line(40, "xr.sync()")
    lines = story.line(31, "src = src.to(device)"), story.line(32, "tgt = tgt.to(device)")
    before: tuple[int, int] = (9, 9)
    for n, lengths in enumerate([(9, 9), (7, 9), (7, 5), (6, 5), (6, 8), (9, 8)]):
        which = int(lengths[0] == before[0])
        old, new = (f"s64[4,{pair[which]}]" for pair in (before, lengths))
        change = Change("shape", old, new, "input of aten::embedding", made=lines[which], moved=True, against=n)
        with story.step():
            story.barrier(barrier, 8, f"lengths {lengths}", change=change if n else None)
        before = lengths
    (finding,) = story.findings("recompile")
    assert (finding.count, finding.place.line, [place.line for place in finding.also]) == (5, 31, [32])
    assert finding.cause.startswith("Sizes vary together")
    assert "dimension 1 of src to 9, dimension 1 of tgt to 9" in finding.advice
    assert "src = torch.nn.functional.pad(src" in finding.remedy
    assert "tgt = torch.nn.functional.pad(tgt" in finding.remedy


def test_nodes_and_edges_of_graphs_are_padded_with_a_node_and_a_graph_that_count_for_nothing() -> None:
    story = Story()
    barrier = story.line(40, "xr.sync()")
    lines = story.line(31, "nodes = nodes.to(device)"), story.line(32, "edges = edges.to(device)")
    counts = [(30, 71), (28, 71), (28, 64), (33, 64), (33, 80), (31, 80)]
    for n, (before, now) in enumerate(zip([counts[0], *counts], counts, strict=False)):
        which = int(now[0] == before[0])
        old, new = (("f32[{},4]", "s64[2,{}]")[which].format(pair[which]) for pair in (before, now))
        change = Change("shape", old, new, "input of aten::index_select", made=lines[which], moved=True, against=n)
        with story.step():
            story.barrier(barrier, 8, f"counts {now}", change=change if n else None)
    (finding,) = story.findings("recompile")
    assert finding.cause.startswith("Sizes vary together")
    assert "loops of a node which pads as well" in finding.advice
    assert "a graph of its own, behind those that count" in finding.advice
    assert "dimension 0 of nodes to 34, dimension 1 of edges to 80" in finding.advice, "one more than came"
    assert "pad dimension 1 of edges with the number of the last node" in finding.advice
    assert "larger ones may come" in finding.advice


def test_a_batch_that_a_loaders_thread_brought_is_told_at_the_loop_over_the_loader() -> None:
    story = Story()
    head, used = story.line(30, "for x, y in loader:"), story.line(12, "return self.net(x)")
    smaller = Change("shape", "f32[32,8]", "f32[20,8]", "input of aten::mm", stack=used, against=1)
    for n in range(12):
        last = n % 4 == 3
        with story.step():
            story.barrier(head, 8, "last" if last else "full", change=smaller if last else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, [place.line for place in finding.also]) == (30, [12])
    assert "which aten::mm reads at line 12" in finding.cause


def test_all_that_is_smaller_in_the_last_batch_is_the_last_batch() -> None:
    def graphs(rows: int, nodes: int) -> Story:
        story = Story()
        barrier, moved = (
            story.line(40, "xr.sync()"),
            [story.line(n, f"{x} = {x}.to(device)") for n, x in ((31, "x"), (32, "y"))],
        )
        shapes = ("f32[384,6]", f"f32[{nodes},6]"), ("f32[32]", f"f32[{rows}]")
        for n in range(16):
            last = n % 8 == 7
            with story.step():
                story.trace(1)
                smaller = [
                    Difference("shape", old, new, "self", made=made, moved=True, came=Operation("aten::mm", made))
                    for (old, new), made in zip(shapes, moved, strict=True)
                ]
                diff = GraphDiff(differences=smaller, against=1) if last else None
                story.barrier(barrier, 8, "last" if last else "full", change=diff)
                story.spend(8)
        story.finish()
        return story

    (finding,) = graphs(24, 288).findings("recompile")
    assert finding.cause.startswith("The last batch of a pass is smaller (24 instead of 32)")
    assert finding.advice.startswith("Leave it out. Else pad all that is smaller")
    (finding,) = graphs(24, 200).findings("recompile")
    assert finding.cause.startswith("Sizes vary together"), "the nodes are not those of three quarters of the rows"


def test_positions_are_not_padded_with_0_which_is_one() -> None:
    story = Story()
    barrier = story.line(40, "xr.sync()")
    move = story.line(35, "scores[torch.tensor(rows, device=device)] = -math.inf")
    sizes = [15, 6, 11, 17]
    for n, size in enumerate(sizes):
        change = Change(
            "shape",
            f"s64[{sizes[n - 1]}]",
            f"s64[{size}]",
            "input of aten::index_put_",
            made=move,
            stack=move,
            moved=True,
            against=n,
        )
        with story.step():
            story.barrier(barrier, 8, f"{size} rows", change=change if n else None)
    (finding,) = story.findings("recompile")
    assert "an index (brought to the device at train.py:35)" in finding.cause
    assert "repeat the last one" in finding.advice
    assert "x.index_select(0, torch.arange(size).clamp(max=x.shape[0] - 1))" in finding.remedy
    assert "loss" not in finding.remedy


@pytest.mark.parametrize(
    ("move", "loop", "named"),
    [
        ("ids = ids.to(device)", 33, True),
        ("batch = {k: v.to(device) for k, v in batch.items()}", 33, True),
        ("ids = torch.tensor(found).to(device)", 33, False),  # made there
        ("ids = ids.to(device)", 50, False),  # in another loop
    ],
)
def test_the_function_that_makes_a_batch_of_another_size_is_named(move: str, loop: int, named: bool) -> None:
    story = Story()
    barrier, moved = story.line(40, "xr.sync()"), story.line(35, move, loops=(loop,))
    draws = story.line(33, "for batch in loader:", loops=(33,))
    made = story.line(12, "longest = max(map(len, rows))", func="collate")
    story.emit(Batches(story.now, draws, made))
    before = 12
    for n in (12, 17, 9, 21, 14):
        change = Change("shape", f"s64[4,{before}]", f"s64[4,{n}]", "input of aten::embedding", made=moved, moved=True)
        with story.step():
            story.barrier(barrier, 8, f"length {n}", change=change if n != before else None)
        before = n
    (finding,) = story.findings("recompile")
    assert ("which collate (train.py:12) makes, changed" in finding.cause) is named
    assert ("Do that where collate makes the batch (train.py:12)." in finding.advice) is named
    assert (12 in [place.line for place in finding.also]) is named


@pytest.mark.parametrize(
    ("move", "first"),
    [
        ("ids = ids.to(device)", "size = 21"),
        ("ids = pool.x[pool.rest].to(device)", "ids = pool.x[pool.rest]"),  # there is no ids on the host
    ],
)
def test_what_is_padded_on_the_host_is_what_the_line_brings_to_the_device(move: str, first: str) -> None:
    story = Story()
    barrier, moved = story.line(40, "xr.sync()"), story.line(35, move)
    for n, (before, size) in enumerate([(12, 12), (12, 17), (17, 9), (9, 21), (21, 14)]):
        change = Change("shape", f"f32[4,{before}]", f"f32[4,{size}]", "input of aten::mm", made=moved, moved=True)
        with story.step():
            story.barrier(barrier, 8, f"length {size}", compile=100, change=change if n else None)
    (finding,) = story.findings("recompile")
    assert finding.remedy.splitlines()[1] == first
    assert "ids = torch.nn.functional.pad(ids, " in finding.remedy
