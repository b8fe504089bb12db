"""A few things to choose one from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option


class ChoiceScreen(ModalScreen[str | None]):
    """The chosen one, or None for escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Back"),
        # the list's own keys, for those that come before it has the focus: none is lost, on a busy machine neither
        Binding("up", "choose('cursor_up')", show=False),
        Binding("down", "choose('cursor_down')", show=False),
        Binding("enter", "choose('select')", show=False),
    ]

    def __init__(self, question: str, answers: Sequence[tuple[str, str]]) -> None:
        """``answers``: what is returned, and what it is called."""
        super().__init__()
        self._question, self._answers = question, answers

    def compose(self) -> ComposeResult:
        box = OptionList(*(Option(text, id=answer) for answer, text in self._answers), id="choice", markup=False)
        box.border_title = self._question
        yield box

    def action_choose(self, do: str) -> None:
        """Do what the list does at this key."""
        for box in self.query(OptionList):
            getattr(box, f"action_{do}")()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
