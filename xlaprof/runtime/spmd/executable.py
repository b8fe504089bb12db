"""Graphs of ``torch.compile(backend="openxla")`` over several devices: a program for each sharding of the arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlaprof.runtime import metrics
from xlaprof.runtime.dynamo import executable
from xlaprof.runtime.dynamo.sketch import COMPUTED
from xlaprof.runtime.execution import compiling, failures, value_checks
from xlaprof.runtime.execution.build import build
from xlaprof.runtime.execution.program import Plan, Program, cache
from xlaprof.runtime.trace import source

from .placement import Form, Partition
from .sharding import OpSharding


class SpreadExecutable(executable.Executable):
    """An :class:`~xlaprof.runtime.dynamo.executable.Executable` whose arguments are global arrays."""

    def _compiled(self, plan: Plan, args: list[Any]) -> Any:
        self._plan = plan  # compiled once the arguments' shardings are known
        diff = self._diff(args, source.here()[0])
        self._differs = lambda: diff
        return plan

    def _run(self, pool: list[Any], inputs: list[Any], frames: Any) -> list[Any]:
        partition: Partition = self.tape.partition
        forms = []
        for i, place in enumerate(self.layout.sources):
            storage = pool[place]._storage
            if type(inputs[i]) is np.ndarray or partition.sharding_at_rest(inputs[i], storage.sig) is None:
                inputs[i] = partition.on_devices(storage)
            forms.append(partition.form(inputs[i], storage.sig))
        self.program = self._program(partition, tuple(forms), self._output_shardings(partition, pool))
        return partition.with_named_shardings(super()._run(pool, inputs, frames))

    def _output_shardings(self, partition: Partition, pool: list[Any]) -> tuple[OpSharding | None, ...]:
        """The shardings of the outputs: an output that overwrites an argument has that argument's."""
        shardings: list[OpSharding | None] = [None] * len(self.layout.graph.outs)
        for place, new in self.layout.writes:
            if new.kind == COMPUTED:
                storage = pool[place]._storage
                shardings[new.at] = storage.sharding or partition.sharding_at_rest(storage.array, storage.sig)
        return tuple(shardings)

    def _program(
        self, partition: Partition, forms: tuple[Form, ...], shardings: tuple[OpSharding | None, ...]
    ) -> Program:
        donated = self._plan.key[2]
        key = (repr(partition), self._plan.graph.hash, donated, value_checks.enabled, shardings, forms)
        program = cache.get(key)
        if program is not None:
            metrics.count("CachedCompile")
            return program
        graph: Any = self._plan.graph._replace(sigs=forms)  # type: ignore[arg-type]
        frames, _ = source.here()

        def make(number: int, plan: Plan) -> Any:
            return build(number, key, plan.graph, self.tape.device, donated, partition=partition)

        try:
            return compiling.compile_plan(self.layout.tape, Plan(key, graph), "dynamo", frames, self._differs, make)
        except Exception as error:
            raise failures.explain(error, self.tape, graph, frames) from error


executable.over_devices = SpreadExecutable
