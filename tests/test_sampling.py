"""Long recordings: ordinary steps are summed, everything else is reported, and the totals are the same."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from recording import recording

from xlaprof.analysis.run import Run
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Compile,
    Event,
    Execute,
    Fallback,
    Frame,
    Header,
    Scope,
    Stack,
    Step,
    StepDigest,
    Text,
    TransferFromDevice,
    TransferToDevice,
)
from xlaprof.recording import recorder
from xlaprof.recording.sampling import HOLD_EVENTS, HOLD_NS, WARM_UP, Sampler, StepOpened

MS = 1_000_000
TRAIN, FORWARD, ITEM = 1, 2, 3  # Text ids

Inside = Callable[[int], list[Event]]  # start of a step -> what happens in it


def usual(t: int) -> list[Event]:
    return [
        TransferToDevice(t + 1, 10, 64),
        Scope(FORWARD, t + 20, 500),
        Barrier(t + 600, 50, tracing=400, stack=1),
        Execute(1, 1, t + 610, t + 620, t + 5_620),
        TransferFromDevice(t + 700, 300, 250, 4, ITEM, 2),
    ]


class SampledSteps:
    """Steps one after the other, fed to a sampler."""

    def __init__(self) -> None:
        self.sampler = Sampler()
        self.reported: list[Event] = []
        self.written: list[Event] = []
        self.t = 1_000
        self.num = 0

    def emit(self, event: Event | StepOpened) -> None:
        if isinstance(event, Event):
            self.reported.append(event)
        self.sampler.feed([event], self.written.append, self.written.append)

    def step(self, inside: Inside = usual, dur: int = MS, name: int = TRAIN, tid: int = 1, error: str = "") -> int:
        self.emit(StepOpened(self.t, tid))
        for event in inside(self.t):
            self.emit(event)
        self.emit(Step(name, self.num, self.t, dur, tid, {}, error))
        self.t += dur + 1_000
        self.num += 1
        return self.num - 1

    def steps(self, count: int, **options: object) -> None:
        for _ in range(count):
            self.step(**options)  # type: ignore[arg-type]

    def full(self, num: int) -> bool:
        """Whether a step was reported event by event; False: as a digest."""
        (event,) = [e for e in self.written if isinstance(e, Step | StepDigest) and e.num == num]
        return isinstance(event, Step)


def warm() -> SampledSteps:
    story = SampledSteps()
    story.steps(WARM_UP + 3)
    return story


def test_the_warm_up_is_reported_in_full_and_what_is_like_it_is_summed() -> None:
    story = warm()
    assert [story.full(num) for num in range(WARM_UP + 3)] == [True] * WARM_UP + [False] * 3
    digest = story.written[-1]
    t = digest.t  # type: ignore[attr-defined]
    assert digest == StepDigest(
        TRAIN,
        WARM_UP + 2,
        t,
        MS,
        1,
        executions=1,
        busy=5_000,
        tracing=400,
        barriers=1,
        scopes={"2": [1, 500, 500]},
        reads={"2:3": [1, 300, 300]},
    )
    # what a digest has no room for is reported as it is
    assert story.written[-2] == TransferToDevice(t + 1, 10, 64)


def test_what_is_out_of_the_ordinary_is_reported_in_full() -> None:
    story = warm()
    more: dict[str, Inside] = {
        "a compile": lambda t: [*usual(t), Compile(t, 1, 2, "cd", 1, 1, 1)],
        "a read at a new place": lambda t: [*usual(t), TransferFromDevice(t, 1, 1, 4, ITEM, 77)],
        "a fallback at a new place": lambda t: [*usual(t), Fallback(t, 1, ITEM, 78)],
        "an error in a scope": lambda t: [*usual(t), Scope(FORWARD, t, 1, error="ValueError")],
        "an error on the device": lambda t: [*usual(t), Execute(2, 1, t, t, t + 1, error="out of memory")],
    }
    for what, inside in more.items():
        assert story.full(story.step(inside)), what
        assert not story.full(story.step()), f"the step after {what}"
    assert not story.full(story.step(more["a read at a new place"])), "a place is new once"
    assert story.full(story.step(dur=MS * 8 // 5))
    assert not story.full(story.step(dur=MS * 7 // 5))
    assert story.full(story.step(error="KeyError"))
    assert story.full(story.step(name=ITEM)), "the first step of another name"


def test_ever_fewer_of_the_ordinary_steps_are_reported_in_full() -> None:
    story = SampledSteps()
    story.steps(5_000)
    full = [event.num + 1 for event in story.written if isinstance(event, Step)]
    assert full[:WARM_UP] == list(range(1, WARM_UP + 1))
    assert full[WARM_UP:] == [60, 70, 80, 90, *range(100, 1_000, 100), *range(1_000, 5_001, 1_000)]


def test_a_step_that_lasts_is_reported_while_it_lasts() -> None:
    story = warm()
    story.emit(StepOpened(story.t, 1))
    story.emit(Scope(FORWARD, story.t, 5))
    story.sampler.tick(story.t + HOLD_NS - 1, story.written.append)
    assert not isinstance(story.written[-1], Scope)
    story.sampler.tick(story.t + HOLD_NS, story.written.append)
    assert isinstance(story.written[-1], Scope)
    story.emit(Scope(FORWARD, story.t, 6))
    assert story.written[-1] == story.reported[-1]
    story.emit(Step(TRAIN, 99, story.t, MS))
    assert story.written[-1] == story.reported[-1]


def test_a_crowded_step_is_reported_in_full_and_holds_no_more_than_it_may() -> None:
    story = warm()
    many = story.step(lambda t: [Scope(FORWARD, t + i, 1) for i in range(HOLD_EVENTS + 1)])
    assert story.full(many)
    assert len([e for e in story.written if isinstance(e, Scope)]) >= HOLD_EVENTS + 1


def test_steps_inside_a_step_are_summed_and_the_one_around_them_is_reported() -> None:
    story = warm()
    epoch = story.t
    story.emit(StepOpened(epoch, 1))
    story.emit(Scope(FORWARD, epoch, 7))  # of the epoch, before its first step
    inner = [story.step() for _ in range(5)]
    story.emit(Step(ITEM, 1_000, epoch, story.t - epoch))
    assert not any(story.full(num) for num in inner)
    assert story.full(1_000)
    assert Scope(FORWARD, epoch, 7) in story.written


def test_while_steps_of_two_threads_overlap_everything_is_reported() -> None:
    story = warm()
    other = story.t
    story.emit(StepOpened(other, 2))
    during = story.step()
    story.emit(Step(ITEM, 1_000, other, story.t - other, 2))
    after = story.step()
    assert story.full(during)
    assert not story.full(after)


def test_a_step_that_never_ended_does_not_end_the_sampling() -> None:
    story = warm()
    story.emit(StepOpened(story.t - 1, 1))
    story.step()
    assert not story.full(story.step())


@st.composite
def stories(draw: st.DrawFn) -> SampledSteps:
    story = SampledSteps()
    length = st.integers(0, MS)
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["steps", "steps", "lone", "nested", "odd"]))
        if kind == "steps":
            story.steps(draw(st.integers(1, 60)))
        elif kind == "odd":
            durs = draw(st.lists(length, max_size=6))
            place = draw(st.integers(0, 5))

            def inside(t: int, durs: list[int] = durs, place: int = place) -> list[Event]:
                return [
                    *(Scope(FORWARD, t, dur) for dur in durs),
                    *(TransferFromDevice(t, dur, dur // 2, 4, ITEM, place) for dur in durs),
                    *(Fallback(t, dur, ITEM, place) for dur in durs[:2]),
                    Execute(1, 1, t, t, t + sum(durs[:1])),
                ]

            story.step(inside, dur=draw(st.integers(MS // 2, 3 * MS)))
        elif kind == "lone":
            story.emit(Scope(FORWARD, story.t, draw(length)))
        else:
            begun = story.t
            story.emit(StepOpened(begun, 1))
            story.steps(draw(st.integers(0, 3)))
            story.emit(Step(ITEM, 0, begun, story.t - begun))
    story.sampler.release(story.written.append)
    return story


Sums = Counter[tuple[object, ...]]


def sums(events: list[Event]) -> Sums:
    """What happened how often and for how long, whether it was reported or summed."""
    total: Sums = Counter()
    for event in events:
        if isinstance(event, Step | StepDigest):
            total["steps", event.name] += 1
            total["steps ns", event.name] += event.dur
        if isinstance(event, Scope):
            total["scopes", str(event.name)] += 1
            total["scopes ns", str(event.name)] += event.dur
        elif isinstance(event, TransferFromDevice | Fallback):
            kind = "reads" if isinstance(event, TransferFromDevice) else "fallbacks"
            total[kind, f"{event.stack}:{event.op}"] += 1
            total[f"{kind} ns", f"{event.stack}:{event.op}"] += event.dur
        elif isinstance(event, Execute):
            total["executions",] += 1
            total["busy",] += event.end - event.start
        elif isinstance(event, Barrier):
            total["barriers",] += 1
            total["tracing",] += event.tracing
        elif isinstance(event, StepDigest):
            for kind in ("scopes", "reads", "fallbacks"):
                for key, (count, ns, _) in getattr(event, kind).items():
                    total[kind, key] += count
                    total[f"{kind} ns", key] += ns
            total["executions",] += event.executions
            total["busy",] += event.busy
            total["barriers",] += event.barriers
            total["tracing",] += event.tracing
        elif not isinstance(event, Step):
            total[type(event).__name__,] += 1
    return +total


@given(stories())
def test_totals_of_a_sampled_log_are_those_of_the_full_one(story: SampledSteps) -> None:
    assert sums(story.written) == sums(story.reported)


def analysed(events: list[Event]) -> dict[str, object]:
    """What the report says that does not depend on the order of events within a step."""
    begin: list[AnyEvent] = [
        Header(1, 7, 0, 0),
        Text(TRAIN, "train"),
        Text(FORWARD, "forward"),
        Text(ITEM, "aten::item"),
        *(Stack(i, [Frame(TRAIN, i, 0)]) for i in (1, 2, 3, 4, 5)),
    ]
    report = Run().feed_all([*begin, *events]).report()
    return {
        "steps": {step.name: (step.count, round(step.split.total_s, 9), step.last_num) for step in report.steps},
        "scopes": {scope.name: (scope.count, round(scope.total_s, 9), scope.max_s) for scope in report.scopes},
    }


@given(stories())
def test_the_analysis_of_a_sampled_log_has_the_totals_of_the_full_one(story: SampledSteps) -> None:
    assert analysed(story.written) == analysed(story.reported)


def test_the_transfers_of_a_fallback_are_its_own_in_summed_steps_too() -> None:
    def falls_back(t: int) -> list[Event]:
        return [
            Barrier(t + 100, 50, stack=1),
            Execute(1, 1, t + 110, t + 120, t + 5_620),
            TransferFromDevice(t + 700, 300, 250, 4, ITEM, 2),
            Fallback(t + 650, 900, ITEM, 2),
        ]

    story = SampledSteps()
    story.steps(WARM_UP + 40, inside=falls_back)
    assert any(isinstance(event, StepDigest) for event in story.written)
    for events in (story.reported, story.written):
        run = Run().feed_all([Header(1, 7, 0, 0), Text(TRAIN, "train"), Text(ITEM, "aten::eig"), *events])
        (finding,) = run.report().findings
        assert (finding.kind, finding.count) == ("fallback", WARM_UP + 40)
        assert f"with {WARM_UP + 40} transfers" in finding.cause


def test_a_recording_is_sampled_unless_asked_otherwise(tmp_path: Path) -> None:
    def train() -> None:
        rec = recorder.active
        assert rec is not None
        name, begun = rec.text("train"), 10
        for num in range(200):
            rec.step_opened(begun + num, 1)
            rec.emit(Scope(name, begun + num, 1))
            rec.step(Step(name, num, begun + num, 1))

    found = {}
    for detail in ("auto", "full"):
        with recording(tmp_path / "run.log", detail) as recorded:
            train()
        found[detail] = recorded()
    assert len(found["full"].of(Step)) == 200
    assert not found["full"].of(StepDigest)
    assert len(found["auto"].of(Step)) < 200
    assert len(found["auto"].of(Step, StepDigest)) == 200
    # by name: ids depend on what else is recorded meanwhile, a collection say
    named = {
        detail: Counter(
            {
                (what, *(one.texts[int(name)] for name in names)): count
                for (what, *names), count in sums(one.of(Step, StepDigest, Scope)).items()
            }
        )
        for detail, one in found.items()
    }
    assert named["auto"] == named["full"]
