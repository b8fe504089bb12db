"""A jitted function whose state is not donated is copied in each call: within it, or on the device."""

from __future__ import annotations

import msgspec
import pytest
from story import MS

from xlaprof.events import JitProgram, Look, OutsideOperations, Undonated

from .test_jitted import Jitted


@pytest.mark.parametrize("mib", [54, 20])
def test_a_state_that_is_copied_within_the_call_costs_what_the_host_is_in_it(mib: int) -> None:
    """XLA's client for CPUs runs a copy within the call: no plain Python, and nothing that could be moved elsewhere.

    Whatever its size, if it is felt.
    """
    story = Jitted()
    insert, name = story.line(39, "replay = insert(replay, items)", outer=(90,), loops=(38,)), story.text("insert")
    story.emit(Undonated(story.now, name, insert, ["replay"], arrays=2, bytes=mib << 20, calls=16))
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(6)
            story.seen(50, "call", insert)
            story.execute("insert", 0, insert)
    (found,) = story.found("donation")
    assert (found.place.line, round(found.cost_s, 1)) == (39, 2.0)
    assert "The host is in this call for 2.00 s while the device has nothing else to do" in found.cause
    assert story.findings("idle_gap") == []


def test_a_copy_that_keeps_a_busy_device_busier_gives_its_time_back_though_nobody_reads() -> None:
    """The host hands over more than the device gets done: JAX keeps the calls waiting, and no read shows that."""
    story, mib = Jitted(), 24 << 20
    insert, name = story.line(39, "replay = insert(replay, items)", outer=(90,), loops=(38,)), story.text("insert")
    story.emit(Undonated(story.now, name, insert, ["replay"], arrays=2, bytes=mib, calls=16))
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
                story.emit(JitProgram(story.now, name, insert, program=1, arguments=mib, results=mib, accessed=2 * mib))
            story.execute("insert", 32, insert)
            story.spend(40)
    (told,) = story.found("donation")
    assert told.cost_s == pytest.approx(1.28)
    assert 0.75 * told.cost_s < told.gain_s < told.cost_s, "the device is busy for four fifths of the time"


def test_a_small_state_that_is_copied_unfelt_is_not_told() -> None:
    story = Jitted()
    insert, name = story.line(39, "replay = insert(replay, items)", outer=(90,), loops=(38,)), story.text("insert")
    story.emit(Undonated(story.now, name, insert, ["replay"], arrays=2, bytes=20 << 20, calls=16))
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 50, story.call)
            story.spend(50)
    assert story.findings("donation") == []


@pytest.mark.parametrize(("rest", "found"), [(0, 1), (96, 0)])
def test_a_state_that_the_device_copies_costs_its_share_of_what_the_program_reads_and_writes(
    rest: int, found: int
) -> None:
    """A replay buffer of 24 MiB is copied on a thread of the device's, and the host waits for the action behind it.

    A program that reads and writes much else is no copy, or a small part of one.
    """
    story, mib = Jitted(), 24 << 20
    insert, name = story.line(39, "replay = insert(replay, items)", outer=(90,), loops=(38,)), story.text("insert")
    act = story.line(41, "action = int(choose(state))", outer=(90,), loops=(38,))
    story.emit(Undonated(story.now, name, insert, ["replay"], arrays=2, bytes=mib, calls=16))
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
                story.emit(
                    JitProgram(
                        story.now,
                        name,
                        insert,
                        program=1,
                        arguments=mib,
                        results=mib,
                        flops=rest * mib // 4,
                        accessed=(2 + rest) * mib,
                    )
                )
            story.execute("insert", 32, insert)
            story.read(act)
            story.spend(4)
    told = story.found("donation")
    assert [(one.place.line, round(one.cost_s, 2)) for one in told] == [(39, 1.28)] * found
    for one in told:
        assert "The device copies for 1.28 s of its time in it." in one.cause
        assert one.gain_s == one.cost_s, "the host waited for all of it"
    assert not any("findings tell of" in one.why for one in story.report().jax.charges), "no compilation"


@pytest.mark.parametrize(("copies_ms", "found"), [(8, 1), (1, 0)])
def test_a_copy_that_is_a_tenth_of_the_steps_is_told_however_long_the_run_compiles(copies_ms: int, found: int) -> None:
    """A histogram of 20 MiB that each batch adds to, 100 s of compiling, and 4 s of steps."""
    story, mib = Jitted(), 20 << 20
    count, name = story.line(39, "bins = count(bins, batch)", outer=(90,), loops=(38,)), story.text("count")
    story.emit(Undonated(story.now, name, count, ["bins"], arrays=1, bytes=mib, calls=16))
    story.execute("step", 1, story.call)
    story.made(ms=100_000)
    for turn in range(100):
        with story.step("step"):
            if turn == 0:
                story.emit(JitProgram(story.now, name, count, program=1, arguments=mib, results=mib, accessed=2 * mib))
            story.execute("count", copies_ms, count)
            story.spend(40)
    told = story.found("donation")
    assert [one.place.line for one in told] == [39] * found


@pytest.mark.parametrize(("flops", "cost_s"), [(300, 3.2), (6 << 20, 1.6)])
def test_a_write_of_a_few_rows_costs_the_copy_and_no_more(flops: int, cost_s: float) -> None:
    """A track of 24 MiB has a row written in each turn: XLA counts the copy, and the write as if it went over all of
    it. A program that computes something of each element goes over the whole array once more, indeed."""
    story, mib = Jitted(), 24 << 20
    write, name = story.line(39, "track = write(track, at, row)", outer=(90,), loops=(38,)), story.text("write")
    told = Undonated(story.now, name, write, ["track"], arrays=1, bytes=mib, calls=16)
    story.emit(told)
    for turn in range(100):
        with story.step("step"):
            if turn == 0:
                story.made()
                made = JitProgram(story.now, name, write, program=1, arguments=mib + 64, results=mib, accessed=4 * mib)
                story.emit(msgspec.structs.replace(made, flops=flops))
            story.execute("write", 32, write)
            story.spend(40)
    (found,) = story.found("donation")
    assert found.cost_s == pytest.approx(cost_s, rel=0.01)
    assert found.count == 100
    assert "Looked at in 16 of 100 recorded calls." in found.cause


@pytest.mark.parametrize("parts", [True, False])
def test_what_is_written_in_part_outside_of_jit_is_to_be_given_up_to_the_function_that_it_is_put_into(
    parts: bool,
) -> None:
    """A bank of embeddings takes those of each batch, with some arithmetic before it."""
    story = Jitted()
    where = {"func": "refresh", "outer": (42, 90), "loops": (0, 38)}
    written = "self.bank = self.bank.at[rows].set(z)" if parts else "self.bank = jnp.roll(self.bank, 1)"
    lines = [story.line(14, "z = z / norm(z)", **where), story.line(15, written, **where)]
    for turn in range(60):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 5, story.call)
            for line, (name, device_ms) in zip(lines, {"norm": 0.5, "scatter": 3}.items(), strict=True):
                story.execute(name, device_ms, line)
                story.emit(Look(story.now, 20 * MS, line, "python"))
                story.spend(20)
                story.emit(OutsideOperations(story.now, story.text("mul"), 15, line))
    (found,) = story.found("op_by_op")
    assert ("Give it self.bank for good" in found.advice) is parts
