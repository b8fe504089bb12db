"""The page of a diagnosis: a program's own words are shown as text."""

from __future__ import annotations

from functools import partial

import pytest
from hostile import EVIL, MARK

from xlaprof.doctor.layers import LAYERS, Diagnosis, Failure, Reproducer, Seen, verdicts
from xlaprof.pages.doctor import render
from xlaprof.pages.page import show_page


def test_words_of_the_program_do_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    failure = Failure("crash", EVIL, f"{EVIL}.py:3", EVIL, graph=EVIL)
    layers = [
        Seen(LAYERS[0].name, took=1.0),
        Seen(LAYERS[2].name, took=1.0, graphs=3, checked=1, unchecked=(EVIL,), failures=(failure,)),
    ]
    made = Reproducer(f"{EVIL}/smaller.py", 2, "yes", EVIL)
    diagnosis = Diagnosis(["train.py", EVIL], "doctor-1", layers, verdicts(layers), made, unsteady=True)
    show_page(partial(render, diagnosis))
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count(MARK) > 4
    lines = out.split("\n")
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert not [
        letter
        for letter in out
        if letter != "\n" and (ord(letter) < 32 or letter in "\x7f\x9b\x90\u202e\u2066\u200b\ufeff\u2028")
    ]
    assert max(map(len, lines)) <= 80
