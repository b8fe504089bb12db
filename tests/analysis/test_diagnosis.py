"""What is concluded from a recorded difference between two graphs, and what from several."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from xlaprof.analysis.diagnosis import cause, parts
from xlaprof.events import Block, Change, Compile, Difference, GraphDiff, Loop, Operation

BARRIER = 9


def found(*differences: Difference, trigger: str = "sync", **fields: Any) -> Change:
    """The cause of a graph that differs so."""
    diff = GraphDiff(differences=list(differences), **fields)
    change = cause(Compile(0, 1, 2, "ab", 5, 1, 1, BARRIER, trigger, diff=diff))
    assert change is not None
    return change


def shape(role: str = "", **fields: Any) -> Difference:
    return Difference("shape", "f32[8]", "f32[5]", "self", came=Operation("aten::mm", 3, role), **fields)


def scalar(old: str, new: str, **fields: Any) -> Difference:
    return Difference("scalar", old, new, "alpha", came=Operation("aten::add_", 4, "optimizer"), **fields)


def path(*roles: str, stack: int = 6, **fields: Any) -> Difference:
    came = [Operation("aten::sin", stack, role) for role in roles]
    block = Block(new=came, added=len(came), roles=dict.fromkeys(roles, 1), stack=stack, **fields)
    return Difference("operation", "barrier", "aten::sin", came=came[0], block=block)


def test_a_log_of_an_earlier_version_has_the_change_itself() -> None:
    change = Change("shape", "f32[8]", "f32[5]", "input of aten::mm")
    assert cause(Compile(0, 1, 2, "ab", 5, 1, 1, change=change)) is change
    assert cause(Compile(0, 1, 2, "ab", 5, 1, 1)) is None


def test_an_input_of_another_shape_comes_before_what_follows_from_it() -> None:
    change = found(scalar("0.5", "0.25"), shape(made=7, moved=True))
    assert (change.what, change.subject, change.made, change.moved) == ("shape", "input of aten::mm", 7, True)


def test_a_parameter_of_another_shape_is_another_one_which_its_line_asked_for() -> None:
    change = found(shape(name="net.weight", made=7, moved=True))
    assert (change.name, change.made, change.moved) == ("net.weight", 0, False)


def test_a_number_is_named_after_the_hyperparameter_that_it_is_or_is_the_negative_of() -> None:
    rates = {"hyperparameters": [("lr", 0.25), ("momentum", 0.9), ("weight_decay", 0.01)]}
    change = found(scalar("-0.5", "-0.25", name="chance"), **rates)
    assert (change.name, change.old, change.new) == ("lr", "0.5", "0.25")
    decayed = found(scalar(repr(1 - 0.5 * 0.01), repr(1 - 0.25 * 0.01)), **rates)
    assert (decayed.name, decayed.old, decayed.new) == ("lr", "0.5", "0.25")
    assert found(scalar("2", "3", name="step"), **rates).name == "step"


def test_where_operations_came_an_input_counts_only_if_one_line_made_it_before_and_now() -> None:
    assert found(path(""), shape(name="", made=7), added=1, roles=[""]).what == "operation"
    assert found(shape(name="", made=7), path(""), added=1, roles=[""]).what == "shape", "it was read before"
    change = found(path(""), added=1, roles=[""], inputs=[shape(made=7)])
    assert (change.what, change.made) == ("shape", 7)
    parameter, after = shape(name="net.weight.grad", made=7, role="grad"), shape(made=7)
    assert found(path(""), added=1, roles=[""], inputs=[parameter, after]).what == "operation"


@pytest.mark.parametrize("came", [True, False])
@pytest.mark.parametrize(("name", "what"), [("aten::slice", "shape"), ("aten::sin", "operation")])
def test_a_slice_that_is_none_at_full_length_comes_and_goes_with_the_size(came: bool, name: str, what: str) -> None:
    """``table[:, :n]`` before a batch is read, the first as long as the table; other operations are a path."""
    block = path("").block
    assert block is not None
    own = [Operation(name, 6)]
    sides = {"new": own, "added": 1} if came else {"new": [], "added": 0, "old": own, "removed": 1}
    sliced = Difference("operation", block=msgspec.structs.replace(block, condition=5, **sides))
    read = msgspec.structs.replace(shape(), expected=Operation("aten::mm", 3))
    counts = {"added": int(came), "removed": int(not came), "roles": [""]}
    assert found(sliced, read, **counts).what == what
    assert len(parts(Compile(0, 1, 2, "ab", 5, 1, 1, diff=GraphDiff(differences=[sliced, read], **counts)))) == 1
    assert found(sliced, read, **{**counts, "added": 4}).what == "operation", "more came than the slice"
    elsewhere = msgspec.structs.replace(shape(), expected=Operation("aten::mm", 2))
    assert found(sliced, elsewhere, **counts).what == "operation", "another line takes it"


def test_which_gradients_there_are_follows_from_the_path() -> None:
    change = found(path("grad", stack=5), path("", stack=6), added=2, roles=["", "grad"])
    assert (change.stack, change.role) == (6, "")


def test_a_barrier_that_ran_the_operations_is_the_cause_unless_a_value_was_read() -> None:
    moved = path("", barrier=11, barrier_condition=12)
    change = found(moved, added=1, roles=[""])
    assert (change.role, change.stack, change.expected, change.condition) == ("barrier", 11, BARRIER, 12)
    assert found(moved, added=1, roles=[""], trigger="read").role == ""


def test_a_loop_is_the_cause_where_most_lines_agree_on_its_iterations() -> None:
    def repeated(agreeing: int) -> Change:
        return found(path(""), added=1, roles=[""], loop=Loop(8, 4, 2, agreeing=agreeing, differing=4))

    change = repeated(2)
    assert (change.role, change.old, change.new, change.stack) == ("loop", "4 passes", "2 passes", 8)
    assert repeated(1).role == ""


def test_what_was_not_recorded_is_no_error() -> None:
    nothing = Difference("operation", block=Block(added=1))
    assert found(nothing, added=1).what == "operation"
    assert found(Difference("scalar"), Difference("argument", read=1)).what == "scalar"
    assert cause(Compile(0, 1, 2, "ab", 5, 1, 1, diff=GraphDiff(captured=True))) is None


def test_a_number_that_training_recorded_follows_from_another_path() -> None:
    number = Difference("argument", "[160, 12]", "[12]", "size", came=Operation("aten::view", 4, "backward"))
    assert found(number, path("grad"), added=9).role == "grad"
    assert found(number).old == "[160, 12]"  # with nothing else it is the cause


def test_numbers_follow_from_a_tensors_shape_and_make_no_part_of_their_own() -> None:
    size = Difference("argument", "[8]", "[5]", "size", came=Operation("aten::view", 4))
    diff = GraphDiff(differences=[shape(made=7), size], against=1)
    (part,) = parts(Compile(0, 1, 2, "ab", 5, 1, 1, BARRIER, diff=diff))
    assert (part.change.what, part.key[1], part.new) == ("shape", 7, ("f32[5]", 0))


def test_an_optimizers_state_is_made_or_kept_wherever_its_operations_stand() -> None:
    def of(line: int, other: str) -> tuple[object, ...]:
        made, later = Operation("aten::zeros_like", line, "state"), Operation(other, line, "optimizer")
        block = Block(old=[made], new=[later], added=1, removed=1, roles={"state": 1, "optimizer": 1}, stack=line)
        one = Difference("operation", "aten::zeros_like", other, expected=made, came=later, block=block)
        (part,) = parts(Compile(0, 1, 2, "ab", 5, 1, 1, BARRIER, diff=GraphDiff(differences=[one], against=1)))
        return part.key, part.old, part.new

    assert of(5, "aten::add") == of(6, "aten::lerp_") == (("operation", 0, "state"), ("made", 0), ("kept", 0))


@pytest.mark.parametrize(("condition", "role"), [(9, "optimizer"), (0, "state")])
def test_a_step_that_a_condition_lets_come_is_another_path_also_where_it_makes_state(condition: int, role: str) -> None:
    """Gradients are added up: in three turns of four no optimizer steps, with SGD as with Adam."""
    step = path("state", "optimizer", condition=condition)
    (part,) = parts(Compile(0, 1, 2, "ab", 5, 1, 1, BARRIER, diff=GraphDiff(differences=[step], against=1)))
    assert (part.change.role, part.change.condition) == (role, condition)
