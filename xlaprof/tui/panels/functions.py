"""Functions of torch.compile as trees of graphs, breaks and recompilations, programs that JAX made again, and why
TorchTPU cut its batches."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from xlaprof.analysis.model import CutStat, FunctionStat, Place, Report
from xlaprof.analysis.torch_tpu.words import cut, put_off, reason
from xlaprof.analysis.views.details import Again, Break, Details, Function
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.cells import shorten
from xlaprof.text.quantities import duration, percent, plural, times
from xlaprof.text.safe import for_screen
from xlaprof.text.strings import printable
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.looking import Looking, ShowCode, place_text
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet

_LONGEST = 140  # cells of a label
Node = Function | Break | Again | FunctionStat | CutStat


class FunctionsTree(Tree[Node]):
    """Functions whose code can be shown."""

    BINDINGS = [Binding("enter", "select_cursor", "Code", key_display="enter")]  # noqa: RUF012  # Textual types it as a list


class FunctionsPanel(Container, Region):
    """The tree; beside it, or below, what is known of the selected one."""

    TITLE = "Functions"
    HELP = (
        "of torch.compile: graphs, their breaks, why they were compiled again; of JAX, what they need; TorchTPU's cuts"
    )
    ORDER = 13
    PLACE = "page"

    _shown: object = None
    _snapshot: Snapshot | None = None
    _moment: Moment | None = None

    def compose(self) -> ComposeResult:
        tree = FunctionsTree("functions", id="functions-tree")
        tree.show_root = False
        yield tree
        yield FunctionDetail(id="function-detail")

    def show(self, snapshot: Snapshot) -> None:
        """Take the functions of the run."""
        details, report, at = snapshot.details, snapshot.report, self._moment
        self._snapshot = snapshot
        if report is not None:
            compiled = report.torch_compile.functions
            self.query_one(FunctionDetail).stats = {(one.name, *one.place.at): one for one in compiled}
        if report is None:
            return
        shown = details.functions, details.jax, report.jax, report.torch_tpu, at
        if shown == self._shown:
            return
        self._shown = shown
        tree = self.query_one(Tree)
        cursor = tree.cursor_line
        tree.clear()
        self._plant(tree.root, details, report)
        note = _note(report)
        here = [node for node in tree.root.children if at is not None and self._is_here(node.data)]
        if at is not None and note:
            note = f"{len({_name(node.data) for node in here}):,} compiled at {at.bar.title}; {note}"
        tree.border_title = heading("Functions", note)
        tree.root.expand()
        if not tree.root.children:
            self.query_one(FunctionDetail).draw(None)
        tree.call_after_refresh(lambda: setattr(tree, "cursor_line", here[0].line if here else max(0, cursor)))

    def explain(self, moment: Moment | None) -> None:
        """Have what was compiled in the step stand out, and select the first of it."""
        self._moment = moment
        if self._snapshot is not None:
            self.show(self._snapshot)

    def _is_here(self, one: Node | None) -> bool:
        """Whether it was compiled in the step under the cursor; so is all where there is none."""
        at = self._moment
        if at is None:
            return True
        if isinstance(one, Again):
            return at.bar.first <= one.step <= at.bar.last
        return isinstance(one, Function | FunctionStat) and at.inside is not None and one.name in at.inside.compiled

    def _label(self, text: str, one: Node) -> Text:
        return _label(text, self._is_here(one))

    def _plant(self, root: TreeNode[Node], details: Details, report: Report) -> None:
        for one in details.functions:
            text = f"{one.name}  {place_text(one.place)}  {plural(one.graphs, 'graph')}, {duration(one.compile_s)}"
            node = root.add(self._label(text, one), data=one, expand=True)
            self._add_breaks(node, one.breaks, self._is_here(one))
            for again in one.again:
                node.add_leaf(self._label(f"compiled again{_when(again)}: {_change(again)}", again), data=again)
            node.allow_expand = bool(node.children)
        for jitted in report.jax.functions:
            made = f"{plural(jitted.graphs, 'program')}, {duration(jitted.compile_s)}"
            text = f"{jitted.name} (JAX)  {place_text(jitted.place)}  {made}"
            root.add_leaf(self._label(text, jitted), data=jitted)
        for one_again in details.jax:
            text = f"{one_again.name} (JAX)  made again{_when(one_again)}: {_change(one_again)}"
            root.add_leaf(self._label(text, one_again), data=one_again)
        for one_cut in report.torch_tpu.reasons:
            text = f"{reason(one_cut)} (TorchTPU)  cut {times(one_cut.count)}: {cut(one_cut)}"
            root.add_leaf(self._label(text, one_cut), data=one_cut)

    def _add_breaks(self, node: TreeNode[Node], breaks: Iterable[Break], here: bool) -> None:
        for one in breaks:
            kind = "then plain Python" if one.plain else "break by design" if one.by_design else "break"
            child = node.add(_label(f"{kind} at {place_text(one.place)}: {one.reason}", here), data=one, expand=True)
            self._add_breaks(child, one.behind, here)
            child.allow_expand = bool(child.children)

    def stops(self) -> list[Widget]:
        return [self.query_one(Tree), self.query_one(FunctionDetail)]

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[Node]) -> None:
        event.stop()
        if event.node.data is not None:
            self.query_one(FunctionDetail).draw(event.node.data)
            self.post_message(Looking(_place(event.node.data)))

    def on_tree_node_selected(self, event: Tree.NodeSelected[Node]) -> None:
        event.stop()
        if isinstance(event.node.data, Function):
            self.post_message(ShowCode("torch.compile", name=event.node.data.name))
        elif isinstance(event.node.data, FunctionStat):
            self.post_message(ShowCode("jax", name=event.node.data.name))


def _note(report: Report) -> str:
    done, jax = report.torch_compile, report.jax
    parts = [f"torch.compile: {plural(done.graphs, 'graph')} in {duration(done.total_s)}"] * bool(done.count)
    if done.run_time.share is not None:
        parts.append(f"run {percent(done.run_time.share)} of the time")
    parts += [f"JAX: {plural(jax.graphs, 'program')} in {duration(jax.total_s)}"] * bool(jax.count)
    parts += [f"TorchTPU: {put_off(report.torch_tpu)}"] * bool(report.torch_tpu.batches)
    return "; ".join(parts)


def _label(text: str, here: bool) -> Text:
    return Text(for_screen(shorten(text, _LONGEST)), "" if here else "dim")


def _name(one: Node | None) -> str:
    return "" if one is None or isinstance(one, Break | CutStat) else one.name


def _place(one: Node) -> Place:
    if isinstance(one, CutStat):
        return one.places[0] if one.places else Place()
    return one.place


def _when(again: Again) -> str:
    return f" in step {again.step:,}" if again.step >= 0 else ""


def _change(again: Again) -> str:
    if not again.changes:
        return "why is not known"
    kind, subject, old, new = again.changes[0]
    return f"{kind} of {subject}: {old} → {new}" if subject else f"{kind}: {old} → {new}"


class FunctionDetail(Panel[Node | None]):
    """A function, a break or a recompilation, with its code."""

    TITLE = "Function"
    #: what the report says of each function of torch.compile, by its name and line
    stats: Mapping[tuple[str, str, int], FunctionStat] = {}

    def title(self, data: Node | None) -> str:
        if isinstance(data, Break):
            return f"Graph break {data.number}".rstrip()
        if isinstance(data, CutStat):
            return "Batches of TorchTPU"
        return "Compiled again" if isinstance(data, Again) else "Function"

    def lines(self, data: Node | None, width: int) -> list[Line]:
        if data is None:
            return [quiet("no function was compiled by torch.compile, and no program made again by JAX")]
        wide = max(8, width)
        place = _place(data)
        phases: tuple[tuple[str, float], ...] = ()
        out = [line((shorten(f"{place.file}:{place.line}", width, keep_end=True), "$text-muted"))]
        if place.code:
            out += [line("  ", (shorten(place.code, width - 2), "bold")), line("")]
        if isinstance(data, Break):
            facts = [f"{times(data.count)}"]
            if data.vain_s > 0:
                facts.append(f"{duration(data.vain_s)} of tracing made useless")
            if data.plain:
                facts.append("what follows runs as plain Python")
            paragraphs = [(data.reason, "bold"), (", ".join(facts), ""), (data.explanation, "$text-muted"),
                          (data.hint, "$text-success")]  # fmt: skip
        elif isinstance(data, Again):
            paragraphs = [(f"{duration(data.compile_s)}{_when(data)}", "")]
            paragraphs += [
                (f"{kind} of {subject or 'it'}: {old} → {new}", "") for kind, subject, old, new in data.changes
            ]
        elif isinstance(data, CutStat):
            paragraphs = [
                (reason(data), "bold"),
                (f"{times(data.count)}, {data.cached:,} found in its cache", ""),
                (cut(data), ""),
            ]
        elif isinstance(data, FunctionStat):
            paragraphs = [
                (data.name, "bold"),
                (f"{plural(data.graphs, 'program')} in {duration(data.compile_s)}: {data.backend}", ""),
                (f"{data.again:,} of them compiled again" if data.again else "", "$text-warning"),
                *((need, "") for need in data.needs),
            ]
        else:
            stat = self.stats.get((data.name, *data.place.at))
            phases = stat.phases if stat is not None else ()
            paragraphs = [
                (data.name, "bold"),
                (f"{plural(data.graphs, 'graph')} by {data.backend or 'an unknown backend'}", ""),
                (f"{duration(data.compile_s)} of compiling", ""),
                (f"compiled again {times(len(data.again))}" if data.again else "", "$text-warning"),
                *((said, "") for said in (stat.runs if stat is not None else ())),
            ]
        for text, style in paragraphs:
            out += [line((part, style)) for part in textwrap.wrap(printable(text), wide)]
        if phases:
            rows = [(printable(phase), seconds, "$primary") for phase, seconds in phases]
            out += [line(""), *bar_rows(rows, sum(seconds for _, seconds in phases), width)]
        return out


PANEL = FunctionsPanel
