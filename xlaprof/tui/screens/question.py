"""A line to type an answer into."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input


class QuestionScreen(ModalScreen[str | None]):
    """The answer, or None for escape."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, whole_number: bool = False) -> None:
        super().__init__()
        self._question, self._whole_number = question, whole_number

    def compose(self) -> ComposeResult:
        with Vertical(id="question") as box:
            box.border_title = self._question
            yield Input(type="integer" if self._whole_number else "text", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
