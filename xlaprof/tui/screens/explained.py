"""A page that a verb prints, as of ``xlaprof explain`` or ``compare``, made in a thread as it reads the log again."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.console import RenderableType
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from xlaprof.errors import UserError
from xlaprof.text.safe import for_screen

Page = Callable[[int], RenderableType]


class ExplainedScreen(ModalScreen[None]):
    """``make`` makes the page, which may take long; it is then printed as wide as the screen is."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter", "dismiss", "Back")]

    def __init__(self, title: str, make: Callable[[], Page], doing: str) -> None:
        """``doing``: what is on the screen meanwhile."""
        super().__init__()
        self._title, self._make, self._doing = title, make, doing
        self._page: Page | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="explained") as box:
            box.border_title = for_screen(self._title)
            box.border_subtitle = "escape: back"
            yield Static(self._doing, markup=False)

    def on_mount(self) -> None:
        self.read()

    @work(thread=True, exit_on_error=False)
    def read(self) -> None:
        """Make the page, away from the thread that draws."""
        try:
            page = self._make()
        except (UserError, OSError) as error:  # the log may be gone by now
            said = for_screen(str(error))
            self.app.call_from_thread(lambda: self.query_one(Static).update(said))
            return
        self.app.call_from_thread(self._show, page)

    def _show(self, page: Page) -> None:
        self._page = page
        self.on_resize()

    def on_resize(self) -> None:
        width = self.query_one("#explained").scrollable_content_region.width
        if self._page is not None and width > 0:
            self.query_one(Static).update(self._page(width))
