"""The application: asks the feed for snapshots, hands them to the widgets, and answers keys."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, ProgressBar, Static

from xlaprof.analysis.model import Finding, Place, Report
from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.moment import Moment
from xlaprof.collection import in_small_parts
from xlaprof.errors import UserError
from xlaprof.text.safe import for_screen
from xlaprof.tui import panels, settings
from xlaprof.tui.desk import Desk, unused
from xlaprof.tui.panels.findings import label
from xlaprof.tui.panels.ranks import RanksPanel
from xlaprof.tui.panels.steps import StepsPanel
from xlaprof.tui.program import Program
from xlaprof.tui.screens.choice import ChoiceScreen
from xlaprof.tui.screens.code import CodeScreen
from xlaprof.tui.screens.explained import ExplainedScreen
from xlaprof.tui.screens.help import HelpScreen
from xlaprof.tui.screens.question import QuestionScreen
from xlaprof.tui.snapshot import Snapshot, goes_on, waiting
from xlaprof.tui.themes import DARK, LIGHT, themes
from xlaprof.tui.widgets.keys import Keys
from xlaprof.tui.widgets.looking import Explain, Looking, ShowCode, place_text
from xlaprof.tui.widgets.panel import Region
from xlaprof.tui.widgets.status import GLIMPSE_S, StatusBar
from xlaprof.tui.widgets.tabs import Tab, TabBar

#: A terminal of fewer columns or rows shows one line: what it needs.
LEAST_WIDTH, LEAST_HEIGHT = 40, 12
_SCREENSHOT = "screenshot"
_LOOK_S, _MANY_S = 0.05, 1.0  # seconds between two looks at the end of the log, and where it grows by many events


class LiveApp(App[None]):
    """Shows what ``advance`` returns, again and again.

    ``advance`` runs in a worker thread, never in two at once, and returns in well under a second. A new report is shown
    at once, else ``every_s`` is the pause between two pictures; with None only :meth:`refresh_now` shows anything.
    ``desk`` answers what takes longer. Once the terminal ``is_gone`` the UI ends.
    """

    CSS_PATH = "live.tcss"
    TITLE = "xlaprof"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    # Textual types these two as instance variables.
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (LEAST_WIDTH, "-compact"), (110, "-wide"), (180, "-vast")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (LEAST_HEIGHT, "-low"), (18, "-high"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        # In this order they stand in the footer, as many as there is room for: the way out and to the others first.
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("tab", "turn(1)", "Next", priority=True),
        Binding("shift+tab", "turn(-1)", "Previous", show=False, priority=True),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn_round", "Sort the other way", show=False),
        Binding("g", "goto", "Step", tooltip="Go to step"),
        Binding("e", "export", "Export"),
        Binding("c", "compare", "Compare"),
        Binding("p", "pause", "Pause"),
        Binding("o", "edit", "Edit"),
        Binding("t", "theme", "Light/dark", show=False),
        Binding("escape", "leave", "Back", show=False),
    ]

    def __init__(
        self,
        advance: Callable[[], Snapshot],
        every_s: float | None = 0.1,
        desk: Desk | None = None,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._advance = advance
        self._every_s, self._is_gone = every_s, is_gone
        self.desk = desk or Desk()
        self._latest: Snapshot | None = None
        self._panels: dict[str, Region] = {
            name: panel(id=name) for name, panel in panels.available().items() if name not in self.desk.without
        }
        self._tabs = [name for name, panel in self._panels.items() if panel.PLACE != "top"]
        digits = iter("1234567890")
        self._keys = {name: self._panels[name].KEY or next(digits, "") for name in self._tabs}
        for name, key in self._keys.items():
            if key:
                self.bind(key, f"panel('{name}')", description=name, show=False)
        self.paused = False
        self._asked = False  # a question lies on the screen
        self._drawn = False  # a report: it is held by a pause, but there must be one
        self._remembered = settings.load()
        self._looked_at: Place | None = None
        self._shown = self._tabs[0]
        self._absent: set[str] = set()  # panels that have nothing to show

    def compose(self) -> ComposeResult:
        yield Static(f"xlaprof needs {LEAST_WIDTH}x{LEAST_HEIGHT}", id="too-small")
        yield StatusBar(id="status")
        yield ProgressBar(id="reading", show_eta=False)
        yield from self._in("top")
        yield Static(id="moment", markup=False)
        yield TabBar(self._keys, {name: panel.PLACE for name, panel in self._panels.items()}, id="tabs")
        yield Input(id="filter", placeholder="filter: text in any column; escape takes it away", compact=True)
        yield Static(id="waiting", markup=False)
        with Container(id="body"):
            yield from self._in("left")
            with VerticalScroll(id="side", can_focus=False):
                yield from self._in("right")
            yield from self._in("page")
        yield Keys(compact=True, show_command_palette=False)

    def _in(self, place: str) -> Iterator[Region]:
        """The panels of one place, marked with its name for the style sheet."""
        for panel in self._panels.values():
            if place == panel.PLACE:
                panel.add_class(f"-{place}")
                yield panel

    def on_mount(self) -> None:
        for theme in themes(self.console.color_system):
            self.register_theme(theme)
        self.theme = LIGHT.name if self._remembered.theme == LIGHT.name else DARK.name
        panel = self.desk.first or self._remembered.panel
        self.action_panel(panel if panel in self._tabs else self._tabs[0])
        for region in self._panels.values():
            table = region.table()
            if table is not None and region.id == "findings" and self._remembered.sort:
                table.order, table.descending = self._remembered.sort, self._remembered.descending
        if self._every_s is not None:
            self.run_worker(self._follow(self._every_s), name="follow")

    async def _follow(self, every_s: float) -> None:
        due, caught_up = 0.0, False  # when the next picture is, of the monotonic clock
        with in_small_parts() as search:
            while not self._is_gone():
                snapshot = await self._read_on()
                if time.monotonic() >= due or not caught_up or snapshot.report is not self.report:
                    caught_up, due = self._take(snapshot), time.monotonic() + every_s
                search()
                await self._rest(min(_LOOK_S, every_s) if caught_up else 0)
        self._leave()

    async def _rest(self, pause_s: float) -> None:
        """Until the next look. Many events are read together, which takes less; the step is shown meanwhile."""
        until = time.monotonic() + _MANY_S
        await asyncio.sleep(pause_s)
        while pause_s and self.desk.waits is not None and time.monotonic() < until and self.desk.waits():
            self._glimpse()
            await asyncio.sleep(GLIMPSE_S)

    async def _read_on(self) -> Snapshot:
        """What has come. A report may take long: the step that is shown meanwhile is the one that the log has last."""
        reading = asyncio.ensure_future(asyncio.to_thread(self._advance))
        while not (await asyncio.wait({reading}, timeout=GLIMPSE_S))[0]:
            self._glimpse()
        return await reading

    def _glimpse(self) -> None:
        if self.desk.glimpse is not None and self.default_screen.children:
            self.default_screen.query_one(StatusBar).glimpse(self.desk.glimpse)

    async def refresh_now(self) -> bool:
        """Read on and show the outcome; True: the end of the log has been reached."""
        return self._take(await self._read_on())

    def _take(self, snapshot: Snapshot) -> bool:
        if self.default_screen.children:  # else the user has left meanwhile: nothing is left to be drawn
            new, self._latest = snapshot.report is not self.report, snapshot
            self._show(snapshot, new)
            self.default_screen.query_one(StepsPanel).look_for_marks(snapshot, self.desk.marks)
        return snapshot.link != "catching up" or not self.default_screen.children

    def _show(self, snapshot: Snapshot, new: bool = True) -> None:
        """``new``: there is a report that is not on the screen; of most panels nothing else is seen."""
        screen = self.default_screen  # another may lie above it
        screen.query_one(StatusBar).show(snapshot, self.paused)
        reading = screen.query_one("#reading", ProgressBar)
        behind = snapshot.link == "catching up" and snapshot.total > snapshot.read
        reading.set_class(behind, "-on")
        if behind:
            reading.update(total=snapshot.total, progress=snapshot.read)
        screen.set_class(snapshot.report is None, "-unread")
        if snapshot.report is None:
            screen.query_one("#waiting", Static).update(for_screen(waiting(snapshot)))
        elif not (self.paused and self._drawn):
            first, self._drawn = not self._drawn, True
            new |= first
            if new:
                self._leave_out({name for name, panel in self._panels.items() if not panel.has(snapshot)})
            for name, panel in self._panels.items():
                hidden = panel.PLACE == "page" and name != self._shown  # it is shown the latest when it is turned to
                if first or ((new or panel.LIVE) and not hidden):
                    panel.show(snapshot)

    def _leave_out(self, absent: set[str]) -> None:
        """Show neither these panels nor their tabs."""
        if absent == self._absent:
            return
        self._absent = absent
        self.default_screen.query_one(TabBar).leave_out(absent)
        for name, panel in self._panels.items():
            panel.set_class(name in absent, "-absent")
        if self._shown in absent:
            self._go(*self._stops()[0])

    @property
    def report(self) -> Report | None:
        """The latest one."""
        return self._latest.report if self._latest is not None else None

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """All keys by name, and the panels."""
        for panel in (name for name in self._tabs if name not in self._absent):
            title = self._panels[panel].TITLE
            yield SystemCommand(f"Show {title}", self._panels[panel].HELP, lambda name=panel: self.action_panel(name))
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and binding.description and binding.action not in ("help", "leave"):
                action = binding.action
                name = binding.tooltip or binding.description
                yield SystemCommand(name, f"key {binding.key}", lambda do=action: self._do(do))
        yield SystemCommand("Help", "keys, and what the panels mean", self.action_help)

    @work
    async def _do(self, action: str) -> None:
        await self.run_action(action)

    # -- keys

    def action_pause(self) -> None:
        """Hold the screen still, or go on; the log is read either way."""
        self.paused = not self.paused
        if self._latest is not None:
            self._show(self._latest)

    def action_theme(self) -> None:
        """Light or dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name
        self._remembered.theme = self.theme
        if self._latest is not None:
            self._show(self._latest)  # tables hold colours

    def action_help(self) -> None:
        """Explain the keys."""
        self.push_screen(HelpScreen(self._keys, map(type, self._panels.values())))

    def action_turn(self, by: int) -> None:
        """Move the focus ``by`` places on, showing the panel it is in."""
        stops = self._stops()
        at = next((i for i, (widget, _) in enumerate(stops) if widget is self.focused), -1)
        self._go(*stops[(at + by) % len(stops)])

    def action_panel(self, panel: str) -> None:
        """Show ``panel`` and give it the focus."""
        if panel in self._absent:
            self.notify(f"The recording holds nothing for {self._panels[panel].TITLE}.", timeout=3)
            return
        self._remembered.panel = panel
        self._go(*next(stop for stop in self._stops() if stop[1] == panel))

    def on_tab_chosen(self, event: Tab.Chosen) -> None:
        self.action_panel(event.panel)

    def action_sort(self) -> None:
        """Sort the table of the panel on the screen by its next column."""
        self._sort(lambda table: table.sort_next())

    def action_turn_round(self) -> None:
        """Sort it the other way round."""
        self._sort(lambda table: table.sort_by(table.order) if table.order else None)

    def _sort(self, do: Callable[..., None]) -> None:
        table = self._panels[self._shown].table()
        if table is None:
            self.notify("There is no table here to sort.", timeout=2)
            return
        do(table)
        if self._shown == "findings":
            self._remembered.sort, self._remembered.descending = table.order, table.descending

    def action_filter(self) -> None:
        """Type what rows of the table must have."""
        table = self._panels[self._shown].table()
        if table is None:
            self.notify("There is no table here to filter.", timeout=2)
            return
        line = self.default_screen.query_one("#filter", Input)
        line.add_class("-on")
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        table = self._panels[self._shown].table()
        if event.input.id == "filter" and table is not None:
            table.filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self.action_panel(self._shown)

    def action_leave(self) -> None:
        """Take the filter away."""
        line = self.default_screen.query_one("#filter", Input)
        if line.has_class("-on"):
            line.value = ""
            line.remove_class("-on")
            self.action_panel(self._shown)

    async def _ask(self, question: ModalScreen[str | None]) -> str | None:
        """The answer to ``question``; None at once while there is another: keys may come faster than screens."""
        if self._asked:
            return None
        self._asked = True
        try:
            return await self.push_screen_wait(question)
        finally:
            self._asked = False

    @work
    async def action_goto(self) -> None:
        """Put the step cursor on a step by its number."""
        answer = await self._ask(QuestionScreen("Go to step", whole_number=True))
        steps = self.default_screen.query_one(StepsPanel)
        if answer and answer.lstrip("-").isdecimal() and not steps.goto(int(answer)):
            self.notify(f"The run has no step {answer} yet.", severity="warning", markup=False)
        elif answer:
            steps.focus()

    def action_edit(self) -> None:
        """Open the line that is looked at in $EDITOR."""
        place, snapshot = self._looked_at, self._latest
        editor = settings.editor()
        if place is None or snapshot is None or self.desk.code is None:
            self.notify("No line of code is selected.", timeout=3)
            return
        if not editor or shutil.which(editor[0]) is None:
            self.notify("Set $EDITOR to the editor that is to open it.", severity="warning")
            return
        found = self.desk.code(place, snapshot.cwd, 0)
        if not found.path:
            self.notify(for_screen(found.remark), severity="warning", markup=False)
            return
        try:
            with self.suspend():
                subprocess.run([*editor, f"+{place.line}", found.path])
        except SuspendNotSupported:
            self.notify("There is no terminal here for the editor: this screen is served to a browser.")
        self.refresh()

    @work
    async def action_export(self) -> None:
        """Write what is seen to a file."""
        report = self.report
        if report is None:
            return
        kinds = [(name, name) for name in self.desk.exports]
        kind = await self._ask(ChoiceScreen("Export as", [*kinds, (_SCREENSHOT, "a picture of the screen (SVG)")]))
        if kind is None:
            return
        try:
            if kind == _SCREENSHOT:
                path = unused(Path.cwd() / f"{PurePath(report.run.path).stem}.svg")
                path.write_text(self.export_screenshot())
                written = str(path)
            else:
                written = await asyncio.to_thread(self.desk.exports[kind], report)
        except (UserError, OSError) as error:
            self.notify(for_screen(str(error)), severity="error", markup=False)
            return
        self.notify(for_screen(f"Written: {written}"), markup=False)

    @work
    async def action_compare(self) -> None:
        """Compare with a recording that was made before."""
        compare = self.desk.compare
        if compare is None or self.report is None:
            return
        path = await self._ask(QuestionScreen("Compare from which recording to this one? Its path"))
        if path:
            doing = "Reading both recordings..."
            self.push_screen(ExplainedScreen(f" From {path} to this one ", lambda: compare(path), doing))

    async def action_quit(self) -> None:
        """End the UI. Where it has the terminal of a program that still runs, ask what is to become of that."""
        program = self.desk.program
        if program is None or not goes_on(self._latest):
            self._leave()
        elif not isinstance(self.screen, ChoiceScreen):
            self._ask_about(program)

    @work
    async def _ask_about(self, program: Program) -> None:
        end = ("kill", "kill it: it has not ended") if program.interrupted else ("end", "end it, as Ctrl-C does")
        stay = ("stay", "stay, and let it run")
        leave = ("leave", "close the screen; the program goes on")
        answer = await self.push_screen_wait(ChoiceScreen("The program still runs", [stay, end, leave]))
        if answer == "end":
            program.interrupt()
            self.notify("The program was interrupted; the screen stays until you close it.")
        elif answer == "kill":
            program.kill()
        elif answer == "leave":
            self._leave()

    def _leave(self) -> None:
        settings.save(self._remembered)
        self.exit()

    # -- what panels say

    def on_looking(self, event: Looking) -> None:
        self._looked_at = event.place
        if event.finding:
            self.default_screen.query_one(StepsPanel).look(event.finding)

    def on_steps_panel_chosen(self, event: StepsPanel.Chosen) -> None:
        for panel in self._panels.values():
            panel.follow(event.bar)
        if event.bar is not None:
            self._explain_step(event.bar)
            return
        self._tell(None)
        if self._latest is not None:
            self._show(self._latest)

    @work(exclusive=True, group="moment")
    async def _explain_step(self, bar: Bar) -> None:
        """Have the step under the cursor explained in a thread: there may be hundreds of thousands of stretches."""
        if self.desk.moment is not None and (told := await asyncio.to_thread(self.desk.moment, bar)) is not None:
            self._tell(told)

    def _tell(self, moment: Moment | None) -> None:
        if moment is None:
            self.workers.cancel_group(self, "moment")
        for panel in self._panels.values():
            panel.explain(moment)
        line = self.default_screen.query_one("#moment", Static)
        line.set_class(moment is not None, "-on")
        if moment is not None:
            line.update(for_screen(moment.told))

    async def on_ranks_panel_chosen(self, event: RanksPanel.Chosen) -> None:
        if self.desk.choose is not None:
            self.desk.choose(event.path)
            self.action_panel(self._tabs[0])
            if self._every_s is None:
                await self.refresh_now()

    def on_show_code(self, event: ShowCode) -> None:
        if (of := self._latest) is not None:
            screen = CodeScreen(self.desk, of.path, of.cwd, event.source, event.key, event.name, event.other)
            self.push_screen(screen)

    def on_explain(self, event: Explain) -> None:
        self._explain(event.finding)

    def _explain(self, finding: Finding) -> None:
        report, explain = self.report, self.desk.explain
        if report is None or explain is None:
            return
        title = f" {label(finding.kind).capitalize()}  {place_text(finding.place)} "
        doing = "Reading the recording for every time that it happened..."
        self.push_screen(ExplainedScreen(title, lambda: explain(finding, report), doing))

    # -- where the focus is

    def _stops(self) -> list[tuple[Widget, str]]:
        """Where the focus can go, and the panel each place belongs to."""
        steps = [(panel, self._shown) for panel in self._panels.values() if panel.PLACE == "top"]
        there = [name for name in self._tabs if name not in self._absent]
        return [*((widget, name) for name in there for widget in self._panels[name].stops()), *steps]

    def _go(self, widget: Widget, panel: str) -> None:
        self._shown = panel
        for name in self._tabs:
            self._panels[name].set_class(name == panel, "-shown")
        body = self.default_screen.query_one("#body")
        body.set_class(self._panels[panel].PLACE == "left", "-left-shown")
        body.set_class(self._panels[panel].PLACE == "page", "-page-shown")
        self.default_screen.query_one(TabBar).mark(panel)
        widget.focus()
        if self._latest is not None and self._latest.report is not None and not self.paused:
            self._panels[panel].show(self._latest)  # some are drawn while they are seen only
