"""Graphs: every program that was compiled, how it parts from the one before, and any two beside each other."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from xlaprof.analysis.views.details import Graph
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.cells import fit, shorten
from xlaprof.text.quantities import duration, plural, size_text
from xlaprof.text.safe import for_screen
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.looking import Looking, ShowCode, place_text
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet
from xlaprof.tui.widgets.table import Column, SortedTable

_LONGEST = 100  # cells of a label in the tree
_LABEL = 22  # cells of what a figure is called


def _columns() -> list[Column[Graph]]:
    return [
        Column("graph", 6, lambda one: f"{one.program}", lambda one: one.program, keep=9, right=True),
        Column("from", 5, lambda one: f"{one.against}" if one.against else "", lambda one: one.against, keep=5,
               right=True),
        Column("parts at", 0, lambda one: (difference(one), "text-warning" * bool(one.what)),
               difference, keep=6, least=14),
        Column("ops", 7, lambda one: f"{one.ops:,}", lambda one: one.ops, keep=4, right=True),
        Column("compile", 8, lambda one: duration(one.compile_s), lambda one: one.compile_s, keep=8, right=True),
        Column("runs", 7, lambda one: f"{one.runs:,}", lambda one: one.runs, keep=7, right=True),
        Column("busy", 8, lambda one: duration(one.busy_s), lambda one: one.busy_s, keep=2, right=True),
        Column("needs", 9, lambda one: size_text(one.needs_bytes) if one.needs_bytes else "",
               lambda one: one.needs_bytes, keep=0, right=True),
        Column("step", 6, lambda one: f"{one.step:,}" if one.step >= 0 else "", lambda one: one.step, keep=3,
               right=True),
        Column("line", 18, lambda one: place_text(one.place), lambda one: (one.place.file, one.place.line), keep=1),
    ]  # fmt: skip


def difference(one: Graph) -> str:
    """In what a graph differs from the closest one before, in short."""
    if not one.what:
        return "nothing to compare with"
    return f"{one.what} {one.subject}: {one.old} → {one.new}"


class GraphsTable(SortedTable[Graph]):
    """Graphs whose code can be shown."""

    BINDINGS = [Binding("enter", "select_cursor", "Code", key_display="enter")]  # noqa: RUF012  # Textual types it as a list


class GraphsPanel(Container, Region):
    """The table; beside it, or below, the tree of where graphs parted and the selected graph."""

    TITLE = "Graphs"
    HELP = "programs that were compiled; m marks one, which the next is put beside; enter: its code"
    ORDER = 12
    PLACE = "page"
    BINDINGS = [Binding("m", "mark", "Mark")]  # noqa: RUF012  # Textual types it as a list

    _graphs: dict[int, Graph] = {}  # noqa: RUF012  # replaced, never changed
    _marked = 0  # program
    _moment: Moment | None = None
    _shown_at: Moment | None = None  # with what is on the screen
    _snapshot: Snapshot | None = None

    def compose(self) -> ComposeResult:
        yield GraphsTable(_columns(), id="graphs-table", given="order")
        with Container(id="graphs-beside"):
            tree: Tree[int] = Tree("where graphs part", id="graphs-tree")
            tree.show_root = False
            tree.border_title = heading("Where graphs part")
            yield tree
            yield GraphDetail(id="graph-detail")

    def show(self, snapshot: Snapshot) -> None:
        """Take the graphs of the run."""
        self._snapshot = snapshot
        graphs = {one.program: one for one in snapshot.details.graphs}
        if graphs == self._graphs and graphs and self._shown_at == self._moment:
            return
        new = graphs.keys() != self._graphs.keys()
        self._graphs = graphs
        table = self.query_one(SortedTable)
        at = self._shown_at = self._moment
        faint = frozenset(map(str, graphs.keys() - set(at.graphs))) if at is not None else frozenset()
        table.show([(str(program), one) for program, one in graphs.items()], faint)
        note = plural(len(graphs), "program") + f" in {duration(sum(one.compile_s for one in graphs.values()))}"
        if at is not None:
            note += f", {len(at.graphs):,} of them at {at.bar.title}"
        table.border_title = heading("Graphs", note if graphs else "")
        if new:
            self._plant()
        if not graphs:
            self.query_one(GraphDetail).draw((None, None))

    def _plant(self) -> None:
        """Draw the tree anew."""
        tree = self.query_one(Tree)
        tree.clear()
        nodes: dict[int, TreeNode[int]] = {}
        for one in self._graphs.values():
            parent = nodes.get(one.against, tree.root)
            text = f"{one.program}  {difference(one) if one.what else place_text(one.place)}"
            nodes[one.program] = parent.add(Text(for_screen(shorten(text, _LONGEST))), data=one.program, expand=True)
        for node in nodes.values():
            node.allow_expand = bool(node.children)
        tree.root.expand()

    def explain(self, moment: Moment | None) -> None:
        """Have the graphs that were compiled in the step stand out, and select the first of them."""
        self._moment = moment
        if self._snapshot is not None:
            if moment is not None and moment.graphs:
                self.query_one(SortedTable).choose(str(moment.graphs[0]))
            self.show(self._snapshot)

    def table(self) -> SortedTable[Graph]:
        return self.query_one(SortedTable)

    def stops(self) -> list[Widget]:
        return [self.query_one(SortedTable), self.query_one(Tree), self.query_one(GraphDetail)]

    def action_mark(self) -> None:
        """Put the next selected graph beside this one; again: no more."""
        row = self.query_one(SortedTable).row
        if row is not None:
            self._marked = 0 if self._marked == row.program else row.program
            self._explain(row)

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[int]) -> None:
        event.stop()
        if event.node.data in self._graphs and event.node.tree.has_focus:
            self.query_one(SortedTable).choose(str(event.node.data))

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        self._explain(event.row)

    def on_sorted_table_opened(self, event: SortedTable.Opened) -> None:
        event.stop()
        one = event.row
        beside = self._marked if self._marked in self._graphs and self._marked != one.program else one.against
        self.post_message(ShowCode("xla", f"{one.program}", other=f"{beside}"))

    def _explain(self, one: Graph) -> None:
        other = self._graphs.get(self._marked) or self._graphs.get(one.against)
        self.query_one(GraphDetail).draw((one, other if other is not one else None))
        self.post_message(Looking(one.places[0][1] if one.places else one.place))


class GraphDetail(Panel[tuple[Graph | None, Graph | None]]):
    """One graph, beside the one it was compared with or the marked one."""

    def title(self, data: tuple[Graph | None, Graph | None]) -> str:
        one, other = data
        if one is None:
            return "Graph"
        return f"Graph {one.program}" + (f" beside graph {other.program}" if other is not None else "")

    def lines(self, data: tuple[Graph | None, Graph | None], width: int) -> list[Line]:
        one, other = data
        if one is None:
            return [quiet("no program has been compiled on an xla device")]
        out = [*self._figures(one, other, width), line("")]
        phases = [("lowering", one.lower_s, "$primary"), ("XLA", one.backend_s, "$warning")]
        rest = one.compile_s - one.lower_s - one.backend_s
        if rest > 0.001 * one.compile_s:
            phases.append(("other", rest, "$text-muted"))
        out += bar_rows([row for row in phases if row[1] > 0], one.compile_s, width)
        if one.cached:
            out.append(quiet("loaded from the persistent cache"))
        out.append(line(""))
        if one.what:
            earlier = f"graph {one.against}" if one.against else "an earlier graph"
            out.append(line(f"Parts from {earlier} after {plural(one.common, 'operation')} in common:"))
            out.append(line(("  ", ""), (shorten(f"{one.what} of {one.subject or 'the graph'}", width - 2), "bold")))
            out.append(line(("- ", "$text-error"), (shorten(one.old, width - 2), "$text-error")))
            out.append(line(("+ ", "$text-success"), (shorten(one.new, width - 2), "$text-success")))
            if one.added or one.removed:
                out.append(quiet(f"{one.added:,} operations came, {one.removed:,} went"))
        for what, place in (*one.places, ("needed at", one.place)):
            out.append(line((fit(what, _LABEL), "$text-muted"), shorten(place_text(place), max(8, width - _LABEL))))
            if place.code:
                out.append(line("  ", shorten(place.code, width - 2)))
        return out

    @staticmethod
    def _figures(one: Graph, other: Graph | None, width: int) -> list[Line]:
        """The figures of one graph, or of two with those marked that differ."""

        def figures(graph: Graph) -> list[tuple[str, str]]:
            return [
                ("operations", f"{graph.ops:,}"),
                ("inputs, outputs", f"{graph.inputs:,}, {graph.outputs:,}"),
                ("compiled in", duration(graph.compile_s)),
                ("for a", graph.trigger),
                ("in step", f"{graph.step:,}" if graph.step >= 0 else "before the first"),
                ("runs", f"{graph.runs:,}"),
                ("device busy", duration(graph.busy_s)),
                ("needs", f"{size_text(graph.needs_bytes)} while it runs" if graph.needs_bytes else ""),
            ]

        column = max(8, (width - 18) // 2)
        left = figures(other) if other is not None else []
        rows = []
        if other is not None:
            head = f"{'':18}{fit(f'graph {other.program}', column)}{f'graph {one.program}'}"
            rows.append(quiet(shorten(head, width)))
        for number, (name, value) in enumerate(figures(one)):
            before = left[number][1] if left else ""
            if not value and not before:
                continue
            style = "$text-warning" if left and before != value else ""
            beside = fit(before, column) if left else ""
            rows.append(line((fit(name, 18), "$text-muted"), beside, (for_screen(value), style)))
        return rows


PANEL = GraphsPanel
