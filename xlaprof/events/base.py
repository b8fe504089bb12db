"""The base of all events, and the version of their schema."""

from typing import ClassVar

import msgspec

#: Version of this schema. It grows when an old reader would misunderstand a new log.
SCHEMA = 1
#: Triggers of programs that run by themselves: a barrier ends what is recorded beside them.
APART = frozenset({"dynamo", "eager", "fallback"})


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="k", gc=False):
    """Base of all events. The tag under ``"k"`` names the kind."""

    #: what a timeline calls it, which draws it at ``t`` for ``dur``, with its other fields; "": drawn otherwise, or not
    label: ClassVar[str] = ""
    #: fields whose numbers never descend from one to the next
    ascending: ClassVar[tuple[str, ...]] = ()
