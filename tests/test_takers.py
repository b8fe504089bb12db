"""A line that gives a value its name: the statements of its loop say what needs the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from xlaprof.source_text.takers import takers

PROGRAM = """
def solve(xs, tolerance):
    before = 0
    for x in xs:
        now = x.item()
        step(x)
        if abs(now - before) < tolerance:
            print("settled")
            break
        before = now
    print(now)

def report(xs):
    for n, x in enumerate(xs):
        loss = model(
            x,
        ).item()
        if n % 50 == 0:
            logger.info(
                "loss %f",
                loss,
            )
        self.best = max(self.best, float(x))  # kept
        self.show(self.best)

def search(x):
    while error > 1e-3:
        error = x.norm().item()
    while True:
        if x.all().item():
            break
        if x.any().item():
            continue

def measured(x):
    return x.norm().item()

def train(xs):
    for x in xs:
        error = measured(x)
        if error < 1e-3:
            break

def moved(state):
    for _ in range(9):
        pairs = near(state.pos)
        state, (energy, temp) = advance(state, pairs)
        show(energy, temp=3)

def choose(x):
    if x.any().item():
        return 1
    rate = x.mean().item()
    other = rated(rate=2)
    scale = rate * 2

    return scale
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("now = x.item()", ("if abs(now - before) < tolerance: break", "before = now")),
        (").item()", ('logger.info( "loss %f", loss, )',)),
        ("self.best = max(self.best, float(x))  # kept", ("self.show(self.best)",)),
        ("error = x.norm().item()", ("while error > 1e-3:",)),
        ("if x.all().item():", ("if x.all().item(): break",)),
        ("before = now", ("if abs(now - before) < tolerance: break",)),
        ("rate = x.mean().item()", ("scale = rate * 2", "return scale")),
        ("step(x)", ()),  # it gives nothing a name
        ("state, (energy, temp) = advance(state, pairs)", ("show(energy, temp=3)", "pairs = near(state.pos)")),
        ("show(energy, temp=3)", ()),
        ("return scale", ()),
    ],
)
def test_the_statements_of_its_loop_that_use_it_take_it(file: Path, line: str, taken: tuple[str, ...]) -> None:
    """In the order in which they run: those after it in the turn, then those before it in the next."""
    number = [text.strip() for text in PROGRAM.splitlines()].index(line) + 1
    assert takers(str(file), number) == taken


def test_what_a_line_returns_the_statement_that_called_its_function_takes(file: Path) -> None:
    lines = [text.strip() for text in PROGRAM.splitlines()]
    inner, outer = (lines.index(text) + 1 for text in ("return x.norm().item()", "error = measured(x)"))
    assert takers(str(file), inner, (str(file), outer)) == ("error = measured(x)", "if error < 1e-3: break")
    assert takers(str(file), inner) == takers(str(file), inner, ("gone.py", 3)) == ()


def test_a_test_that_only_skips_or_ends_a_function_leaves_no_loop(file: Path) -> None:
    lines = [text.strip() for text in PROGRAM.splitlines()]
    for number, text in enumerate(lines, 1):
        if text == "if x.any().item():":
            assert takers(str(file), number) == ()


@pytest.mark.parametrize("line", [0, 1, 10_000])
def test_there_is_no_such_line(file: Path, line: int) -> None:
    assert takers(str(file), line) == ()
    assert takers("<stdin>", line) == ()


def test_text_that_is_no_python_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "torn.py"
    path.write_text("for x in xs:\n  a = x.item(\n((((\n" + "  b = a\n" * 500)
    for line in range(1, 20):
        assert len(takers(str(path), line)) <= 6
