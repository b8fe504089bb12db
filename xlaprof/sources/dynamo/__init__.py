"""``torch.compile``, any backend, while it works: graph breaks, recompilations, its limits and what all that costs.

Dynamo keeps a structured trace of what it does, on the logger ``torch.__trace``. While a recording is on a handler of
ours is attached there; its records become events. Nothing of the user's program is changed, torch is not imported for
it, and a step that compiles nothing writes no record; how long its graphs take is sampled (:mod:`.calls`).

==============  ==================================================================================
:mod:`.record`  one record parsed: a pure function, the same for a record and a line of a file
:mod:`.breaks`  the text of a graph break
:mod:`.guards`  the text of a guard that failed
:mod:`.hints`   both in plain words
:mod:`.asked`   whether Python asks for what a tensor's values decide
:mod:`.process` what only the running process knows: new values, everything that differs, who calls
:mod:`.handed_over` guards of what follows a graph break
:mod:`.emit`    records to events
:mod:`.apart`   compile beside what the program has compiled
:mod:`.phases`  where a compilation's time went
:mod:`.cuda_graphs` which CUDA graphs were recorded, and what runs without, and why
:mod:`.generated` what inductor's code of a graph runs
:mod:`.conversions` where a graph makes numbers wider, and copies between devices
:mod:`.calls`   how long the calls of graphs take, and what lies between them
:mod:`.handler` the logging handler
:mod:`.freezing` what is about to be compiled, for ``xlaprof.frozen``
==============  ==================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlaprof.vocabulary import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlaprof.recording.frozen import Judge
    from xlaprof.recording.recorder import Recorder

    from .handler import Handler


class Dynamo:
    name = "torch.compile"
    module = "torch._dynamo"
    vocabulary = STANDARD

    def attach(self, rec: Recorder) -> Handler:
        from .handler import Handler  # what it imports is of no use to programs without torch.compile

        handler = Handler(rec)
        handler.begin()
        return handler

    def watch(self, judge: Judge) -> Callable[[], None]:
        from .freezing import watch

        return watch(judge)


LIVE = Dynamo()
