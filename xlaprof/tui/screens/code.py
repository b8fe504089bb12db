"""What compilers made of a program: its texts, searched, each line with the user's; and two programs side by side."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from xlaprof.analysis.model import Place
from xlaprof.analysis.views.programs import CompiledProgram, Programs
from xlaprof.compiled.beside import rows
from xlaprof.errors import UserError
from xlaprof.text.cells import shorten
from xlaprof.text.quantities import plural
from xlaprof.text.safe import for_screen
from xlaprof.text.strings import printable
from xlaprof.tui.desk import Code, Desk, ProgramText
from xlaprof.tui.screens.choice import ChoiceScreen
from xlaprof.tui.widgets.looking import Looking
from xlaprof.tui.widgets.panel import heading, line, quiet
from xlaprof.tui.widgets.texts import TextLines

_AROUND = 3  # lines of the user's source around the one that is looked at
_CHOICES = 500  # programs


class CodeScreen(ModalScreen[None]):
    """The texts of one program after the other. ``source`` and ``keys``, or ``name``: the program that comes first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "next(1)", "Next"),
        Binding("N", "next(-1)", "Previous", show=False),
        Binding("f", "form", "Form"),
        Binding("d", "beside", "Beside another"),
        Binding("left_square_bracket", "program(-1)", "Program before", show=False),
        Binding("right_square_bracket", "program(1)", "Program", key_display="[ ]"),
        Binding("tab", "turn", "Other side", show=False),
        Binding("o", "app.edit", "Edit"),
    ]

    def __init__(
        self, desk: Desk, log: str, cwd: str, source: str, key: str = "", name: str = "", other: str = ""
    ) -> None:
        """``cwd``: the program's directory. ``other``: the key of the program that is the first to be put beside."""
        super().__init__()
        self._desk, self._log, self._cwd = desk, log, cwd
        self._wanted, self._offered = (source, key, name), other
        self._programs: Programs | None = None
        self._at = 0
        self._form = ""
        self._beside: CompiledProgram | None = None
        self._texts: tuple[ProgramText, ...] = ()  # what is shown, left and right
        self._differing: list[int] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="code"):
            yield Static("Reading the recording for texts of programs...", id="code-said", markup=False)
            with Horizontal(id="code-texts"):
                yield TextLines(id="code-left")
                yield TextLines(id="code-right")
            yield Input(id="code-search", placeholder="search; enter goes there, n to the next", compact=True)
            yield Static(id="code-source", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#code-right").display = False
        self.query_one("#code-search").display = False
        self.query_one("#code-texts").display = self.query_one("#code-source").display = False
        self.read()

    # -- what is read, away from the thread that draws

    @work(exclusive=True)
    async def read(self) -> None:
        """Find the programs; then the text of one, or of two."""
        desk = self._desk
        if desk.programs is None or desk.text is None:
            return
        try:
            if self._programs is None:
                self._programs = await asyncio.to_thread(desk.programs)
                self._at = self._first(self._programs)
            if self._at < 0:
                self._say("No text of this program was kept; ] shows those of the others.")
                return
            program, of = self._program(), (self._programs, self._cwd, self._log)
            form = self._form if self._form in program.forms else program.forms[0]
            beside = self._beside
            shown = [program] if beside is None else [beside, program]
            texts = [
                await asyncio.to_thread(desk.text, *of, one, form, beside is not None)
                for one in shown
                if form in one.forms
            ]
            if len(texts) < len(shown):
                self._beside = None
                self.notify(f"Not both have the form {form}.", severity="warning", markup=False)
                texts = [await asyncio.to_thread(desk.text, *of, program, form, False)]
            aligned = await asyncio.to_thread(rows, texts[0].lines, texts[1].lines) if len(texts) == 2 else []
        except (UserError, OSError) as error:  # no texts, or they are gone by now
            self._say(str(error))
            return
        self._form = form
        self._show(program, texts, aligned)

    def _program(self) -> CompiledProgram:
        assert self._programs is not None
        return self._programs.programs[self._at]

    def _first(self, found: Programs) -> int:
        source, key, name = self._wanted
        for number, one in enumerate(found.programs):
            if one.source == source and (one.key == key if key else one.name == name):
                return number
        return -1

    # -- what is shown

    def _say(self, said: str) -> None:
        self.query_one("#code-said", Static).update(for_screen(said))

    def _show(self, program: CompiledProgram, texts: list[ProgramText], aligned: list[tuple[int, int, bool]]) -> None:
        left, right = self.query_one("#code-left", TextLines), self.query_one("#code-right", TextLines)
        self.query_one("#code-texts").display = self.query_one("#code-source").display = True
        both = len(texts) == 2
        right.display = both
        left.partner, right.partner = (right, left) if both else (None, None)
        forms = ", ".join(f"[{form}]" if form == self._form else form for form in map(printable, program.forms))
        if not both:
            self._texts, self._differing = tuple(texts), []
            self._say(f"{program.title}  {program.name}  {plural(len(texts[0].lines), 'line')}   {forms}")
            left.take(texts[0].lines)
        else:
            one, two = texts
            assert self._beside is not None
            mine = [at for at, _, _ in aligned], [at for _, at, _ in aligned]
            self._texts = _put(one, mine[0]), _put(two, mine[1])
            self._differing = [n for n, row in enumerate(aligned) if not row[2] and (not n or aligned[n - 1][2])]
            differing = frozenset(n for n, row in enumerate(aligned) if not row[2])
            first = self._differing[0] if self._differing else 0
            where = f"{plural(len(self._differing), 'difference')}, the first is marked" if differing else "the same"
            self._say(f"{self._beside.title} | {program.title}  {self._form}: {where}; n: the next")
            left.take(self._texts[0].lines, differing, first)
            right.take(self._texts[1].lines, differing, first)
        (left if not right.has_focus or not both else right).focus()

    def on_text_lines_moved(self, event: TextLines.Moved) -> None:
        event.stop()
        side = 1 if event.texts.id == "code-right" else 0
        if event.texts.partner is not None and not event.texts.has_focus:
            return
        if side < len(self._texts) and event.line < len(self._texts[side].places):
            self.look(self._texts[side].places[event.line], event.line)

    @work(exclusive=True, group="source")
    async def look(self, place: Place | None, at: int) -> None:
        """Show the user's line, and the code around it."""
        below = self.query_one("#code-source", Static)
        if place is None or self._desk.code is None:
            below.update(quiet(f"line {at + 1:,}: it says no line of the program"))
            return
        code: Code = await asyncio.to_thread(self._desk.code, place, self._cwd, _AROUND)
        width = max(20, below.size.width)
        out = [heading(f"line {at + 1:,} is of {printable(place.file)}:{place.line}")]
        out += [quiet(code.remark)] if code.remark else []
        for one in code.lines:
            text = shorten(f"{one.line:>6} {'>' if one.marked else ' '} {one.code.expandtabs(4)}", width)
            out.append(line((text, "bold $text-warning" if one.marked else "")))
        below.update(Content("\n").join(out))
        self.post_message(Looking(place))

    # -- keys

    def action_leave(self) -> None:
        """Close what is open: the search, then the other side, then the screen."""
        search = self.query_one("#code-search", Input)
        if search.display:
            search.value, search.display = "", False
            self._side().focus()
        elif self._beside is not None:
            self._beside = None
            self.read()
        else:
            self.dismiss()

    def _side(self) -> TextLines:
        right = self.query_one("#code-right", TextLines)
        return right if right.display and right.has_focus else self.query_one("#code-left", TextLines)

    def action_turn(self) -> None:
        """The other one of two."""
        right = self.query_one("#code-right", TextLines)
        if right.display:
            (self.query_one("#code-left") if right.has_focus else right).focus()

    def action_search(self) -> None:
        """Type what is searched for."""
        search = self.query_one("#code-search", Input)
        search.display = True
        search.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        for one in self.query(TextLines):
            one.search(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        side = self._side()
        side.focus()
        if event.value and not side.matches():
            self.notify(f"Nothing here has {event.value}", severity="warning", markup=False)
        elif event.value:
            side.put(next((n for n in side.matches() if n >= side.cursor), side.matches()[0]))

    def action_next(self, by: int) -> None:
        """The next line that has what is searched for; of two texts, the next difference."""
        side = self._side()
        stops = side.matches() or self._differing
        if stops:
            ahead = [n for n in stops if (n > side.cursor if by > 0 else n < side.cursor)]
            side.put((ahead or stops)[0 if by > 0 else -1])

    def action_form(self) -> None:
        """The next form that the program has."""
        if self._programs is not None and self._at >= 0:
            forms = self._program().forms
            self._form = forms[(forms.index(self._form) + 1) % len(forms)] if self._form in forms else forms[0]
            self.read()

    def action_program(self, by: int) -> None:
        """Another program."""
        if self._programs is not None:
            self._at = (self._at + by) % len(self._programs.programs)
            self._beside = None
            self.read()

    @work
    async def action_beside(self) -> None:
        """Put another program of the same source on the left."""
        if self._programs is None or self._at < 0:
            return
        mine = self._program()
        others = [one for one in self._programs.programs if one is not mine and one.source == mine.source]
        others.sort(key=lambda one: (one.key != self._offered, one.name != mine.name))
        if not others:
            self.notify(f"There is no other program of {mine.source}.", markup=False)
            return
        answers = [(one.title, shorten(f"{one.title}  {one.name}", 60)) for one in others[:_CHOICES]]
        chosen = await self.app.push_screen_wait(ChoiceScreen("Beside which program?", answers))
        if chosen is not None:
            self._beside = next(one for one in others if one.title == chosen)
            self.read()


def _put(text: ProgramText, rows_at: list[int]) -> ProgramText:
    """The lines at these positions; -1: an empty one."""
    lines = tuple(text.lines[at] if at >= 0 else "" for at in rows_at)
    return ProgramText(lines, tuple(text.places[at] if at >= 0 else None for at in rows_at))
