"""The causes of a new graph, weighed against all graphs of its barrier."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.analysis.diagnosis import Part
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.recompiles.variants import causes, comes_back
from xlaprof.events import Change

Graph = tuple[bool, ...]  # the switches of a program that are on

OFF, A, B, AB = (False, False), (True, False), (False, True), (True, True)


def record(n: int, *parts: Part) -> CompileRecord:
    """The ``n``-th graph at its barrier, with the differences from the graph before."""
    change = parts[0].change if parts else None
    return CompileRecord(n, 1, n, "", 9, 0, 0, 1, change=change, nth=n - 1, visits=n - 1, step=n, parts=parts)


def named(*graphs: Graph) -> list[set[str]]:
    """What is named as the cause of each graph, which differs from the nearest graph before it in a few switches."""
    seen: list[Graph] = []
    records = []
    for graph in dict.fromkeys(graphs):
        nearest = min(range(len(seen)), key=lambda i: distance(seen[i], graph), default=-1)
        parts = [part(i, on, nearest + 1) for i, on in enumerate(graph) if seen and seen[nearest][i] != on]
        seen.append(graph)
        n = len(seen)
        records.append(record(n, *parts))
    return [{change.subject for change in found.changes} for found in causes(records).values()]


def distance(one: Graph, other: Graph) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def part(i: int, on: bool, against: int) -> Part:
    change = Change("operation", str(not on), str(on), f"switch {i}", against=against)
    return Part(change, ("operation", i, ""), (str(not on), 0), (str(on), 0))


def test_a_value_seen_for_the_first_time_is_the_cause() -> None:
    assert named(OFF, A, B) == [set(), {"switch 0"}, {"switch 1"}]


def test_a_graph_in_which_nothing_is_new_combines_what_was_there_before() -> None:
    assert named(OFF, A, B, AB)[-1] == {"switch 0", "switch 1"}


def test_two_switches_thrown_at_once_are_told_apart_by_what_they_do_later() -> None:
    assert named(OFF, AB) == [set(), {"switch 0"}]  # as far as one can see, one follows from the other
    assert named(OFF, AB, A)[1] == {"switch 0", "switch 1"}


def test_a_combination_names_only_what_would_have_avoided_it() -> None:
    once = (True, False, False)
    later = (False, False, False), (False, True, False), (False, False, True)
    assert named(once, *later, (False, True, True))[-1] == {"switch 1", "switch 2"}


def test_without_any_one_of_the_causes_of_a_combination_it_would_be_a_graph_that_was_there() -> None:
    seen = {
        OFF: record(1),
        A: record(2, part(0, True, 1)),
        B: record(3, part(1, True, 1)),
        AB: record(4, part(0, True, 3)),
    }
    assert [found.either for found in causes(seen.values()).values()] == [False, False, False, True]
    at_once = [record(1), record(2, part(0, True, 1), part(1, True, 1)), record(3, part(0, True, 1))]
    assert [len(found.changes) for found in causes(at_once).values()] == [0, 2, 2]
    assert not causes(at_once)[2, 2].either, "each of the two alone needs a graph"


@given(st.lists(st.tuples(*[st.booleans()] * 4), max_size=20))
def test_every_graph_but_the_first_has_a_cause_and_each_cause_is_a_switch_that_was_thrown(graphs: list[Graph]) -> None:
    found = named(*graphs)
    thrown = {f"switch {i}" for i in range(4) if len({graph[i] for graph in graphs}) == 2}
    assert all(found[1:])
    assert set().union(*found) <= thrown


def test_a_combination_is_told_with_its_own_values_and_not_with_those_that_came_first() -> None:
    def gamma(old: str, new: str, against: int) -> Part:
        change = Change("argument", old, new, "exponent of aten::pow", against=against)
        return Part(change, ("argument", 7, "gamma"), (old, 0), (new, 0))

    # 3 has the switch on at gamma 0.6; 5 has it on at gamma 2.6, where 4 has it off
    parts = {2: gamma("0.6", "1.9", 1), 3: part(0, True, 1), 4: gamma("0.6", "2.6", 1), 5: part(0, True, 4)}
    records = [record(n, *([parts[n]] if n in parts else [])) for n in range(1, 6)]
    (changed,) = [change for change in list(causes(records).values())[-1].changes if change.what == "argument"]
    assert (changed.old, changed.new, changed.against) == ("0.6", "2.6", 3)


def test_a_size_that_was_read_is_the_cause_of_the_shapes_that_follow_from_it() -> None:
    def changed(what: str, old: str, new: str, against: int) -> Part:
        return Part(Change(what, old, new, f"the {what}", against=against), (what, 3, ""), (old, 0), (new, 0))

    sizes = ("88", "2"), ("2", "1")
    for moved, what in ((False, "size"), (True, "shape")):  # of what comes from the host as much is selected
        records = [record(1)]
        for n, (old, new) in enumerate(sizes, 2):
            shape = changed("shape", f"s64[{old}]", f"s64[{new}]", n - 1)
            shape = shape._replace(change=msgspec.structs.replace(shape.change, moved=moved))
            records.append(record(n, shape, changed("size", old, new, n - 1)))
        assert [[change.what for change in found.changes] for found in causes(records).values()] == [[], [what], [what]]


def test_what_comes_back_is_what_a_later_graph_has_too() -> None:
    """Graph 2 leaves a layer out, 3 has it and an optimizer's state, 4 leaves it out again: 1 never ran again."""
    state = Part(Change("operation", "", "", role="state"), ("operation", 0, "state"), ("made", 0), ("kept", 0))
    records = [record(1), record(2, part(0, True, 1)), record(3, state), record(4, part(0, True, 3))]
    assert comes_back(records, {3: 10**12}) == {(2, records[1].t), (4, records[3].t)}
    assert comes_back(records, {4: 10**12}) == set()


def test_of_paths_that_change_together_the_one_whose_condition_is_known_is_the_cause() -> None:
    """A log resets its sum before the barrier: what had been added to it goes, and a new one comes under the if."""
    gone = Change("operation", "aten::add_", "aten::mul_", "the next operation", 114)
    came = Change("operation", "barrier", "aten::zeros", "the end of the graph", 120, condition=118)
    pieces = [
        Part(one, ("operation", one.condition or one.stack, ""), (one.old, 0), (one.new, 0)) for one in (gone, came)
    ]
    assert [change.stack for change in causes([record(1), record(2, *pieces)])[2, 2].changes] == [120]
    again = Part(came, pieces[1].key, ("barrier", 0), ("aten::ones", 0))  # which decided in a graph before, too
    assert [change.stack for change in causes([record(1), record(2, again), record(3, *pieces)])[3, 3].changes] == [120]
    state = Part(Change("operation", "", "", role="state"), ("operation", 0, "state"), ("made", 0), ("kept", 0))
    found = causes([record(1), record(2, state, pieces[1])])
    assert [change.role for change in found[2, 2].changes] == ["state"], "an optimizer's is no path of the program's"
