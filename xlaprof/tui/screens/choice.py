"""A few things to choose one from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option


class ChoiceScreen(ModalScreen[str | None]):
    """The chosen one, or None for escape."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "dismiss(None)", "Back")]

    def __init__(self, question: str, answers: Sequence[tuple[str, str]]) -> None:
        """``answers``: what is returned, and what it is called."""
        super().__init__()
        self._question, self._answers = question, answers

    def compose(self) -> ComposeResult:
        box = OptionList(*(Option(text, id=answer) for answer, text in self._answers), id="choice", markup=False)
        box.border_title = self._question
        yield box

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
