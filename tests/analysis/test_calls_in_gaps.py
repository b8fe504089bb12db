"""Idle gaps in which one call does all of the work, or traces a function anew."""

from __future__ import annotations

from tests.analysis.test_gaps import Watched, idle_gaps
from xlaprof.text.strings import with_article


def test_what_one_call_does_every_ten_steps_is_one_finding() -> None:
    """A gallery is drawn and compressed by two lines of one function, which reads what it draws."""
    story = Watched()
    barrier = story.line(20, "xr.sync()", func="main", loops=(10,))
    drawn = story.line(84, "x = self.g(z).cpu()", func="save", outer=(15,), loops=(0, 10))
    grid = story.line(87, "grid = np.clip(np.kron(x, ones), 0, 255)", func="save", outer=(15,), loops=(0, 10))
    packed = story.line(89, "f.write(zlib.compress(grid))", func="save", outer=(15,), loops=(0, 10))
    for n in range(80):
        with story.step():
            story.barrier(barrier, device=3, dispatch=0, compile=0)
            story.wait()
            if n % 10 == 9:
                story.compile("drawn", 50, drawn, trigger="read")
                story.execute("drawn", 1, drawn, "read")
                story.read(drawn)
                story.seen(60, "python", grid)
                story.seen(150, "python", packed)
    (finding,) = idle_gaps(story)
    assert finding.place.line == 89
    assert [part.place.line for part in finding.parts] == [87]
    assert round(finding.cost_s, 1) == 1.5  # seven gaps: none follows the last


def test_scan_traces_its_function_at_each_call_but_for_a_pure_one() -> None:
    for code, traces in (("y = scan(advance, u, xs)", True), ("y = scan(advance, u, xs, is_fn_pure=True)", False)):
        story = Watched()
        barrier, scans = story.line(20, "xr.sync()", func="main"), story.line(15, code, func="main")
        for _ in range(12):
            with story.step():
                story.seen(30, "python", scans)
                story.barrier(barrier, device=3, dispatch=0, compile=0)
                story.wait()
        (finding,) = idle_gaps(story)
        assert finding.advice.startswith("Define the function that scan is given once") is traces


def test_a_part_is_told_with_its_article() -> None:
    assert [with_article(kind) for kind in ("recompile", "idle_gap")] == ["a recompile", "an idle_gap"]
