"""The compiled programs of a recording whose texts were kept, with what was compiled for which line, and how long."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names
from xlaprof.events import AnyEvent, Code, Compile, Dropped, DynamoCompile, JitCompile, Stack, Text

#: of a program, the form that says most comes first
FORMS = ("generated", "hlo", "post grad", "aot forward", "fx", "stablehlo", "ir", "jaxpr", "aot backward", "aot joint")
_MOST = 10_000  # texts: what a recording keeps


class Kept(msgspec.Struct, frozen=True):
    """A text in the folder beside the log."""

    form: str
    file: str
    bytes: int


class CompiledProgram(msgspec.Struct, frozen=True):
    """A program, and its texts."""

    source: str
    key: str
    name: str
    place: Place  # the user's line that needed it
    seconds: float | None  # that its compilation took; None: not known
    texts: tuple[Kept, ...]

    @property
    def forms(self) -> list[str]:
        """The forms that it has, the best first; those that nobody knows come last."""
        known = {one.form for one in self.texts}
        return [form for form in FORMS if form in known] + sorted(known - {*FORMS})

    @property
    def title(self) -> str:
        """As it is asked for: "xla:3", "torch.compile:1/0"."""
        return f"{self.source}:{self.key}"

    def of(self, form: str) -> list[Kept]:
        """Its texts of one form, in the order in which they were made."""
        return [one for one in self.texts if one.form == form]


class Programs(msgspec.Struct, frozen=True):
    """The programs of a recording, in the order of their first texts."""

    programs: tuple[CompiledProgram, ...]
    compiled: int  # what the recording has compiled, with texts or without
    lost: int  # texts that were not kept
    why: str
    lines: tuple[Place, ...] = ()  # of the program, as the recording holds them


def programs_of(events: Iterable[AnyEvent]) -> Programs:
    """Look through a recording. Of more texts than a recording keeps the first are told."""
    names, texts, first = Names(), dict[tuple[str, str], list[Kept]](), dict[tuple[str, str], Code]()
    ns: dict[tuple[str, str], list[int]] = {}  # by program; of torch.compile one for each time that its id was used
    count = compiled = lost = 0
    why = ""
    for event in events:
        match event:
            case Text():
                names.on_text(event)
            case Stack():
                names.on_stack(event)
            case Code() if count < _MOST:
                count += 1
                key = event.source, event.key
                first.setdefault(key, event)
                texts.setdefault(key, []).append(Kept(event.form, event.file, event.bytes))
            case Code():
                lost += 1
                why = why or f"more than the {_MOST:,} that a recording keeps"
            case Dropped(why="code"):
                lost, why = lost + event.count, event.detail
            case Compile():
                compiled += 1
                ns.setdefault(("xla", str(event.program)), []).append(event.dur)
            case JitCompile():
                compiled += 1
                if event.number:
                    ns.setdefault(("jax", str(event.number)), []).append(event.dur)
            case DynamoCompile():
                took = ns.setdefault(("torch.compile", event.compile), [])
                if not event.backward:
                    compiled += 1
                    took.append(event.dur)
                elif took:
                    took[-1] += event.dur
            case _:
                pass
    used: dict[tuple[str, str], int] = {}
    found = []
    for key, code in first.items():
        base = code.source, code.key.partition("#")[0]
        times = ns.get(base, [])
        which = used[base] = used.get(base, -1) + 1
        seconds = times[which] / 1e9 if which < len(times) else None
        place = names.place(code.stack)
        found.append(CompiledProgram(*key, names.text(code.func), place, seconds, tuple(texts[key])))
    return Programs(tuple(found), compiled, lost, why, tuple(names.lines()))
