"""What a source is: a *live* one observes a running process, a *file* one reads what is on disk.

A module of this folder, or one that a package names under the entry point group ``xlaprof.sources``, declares ``LIVE``,
``FILE`` or both (:mod:`.registry`). It is imported whenever a recording starts or a path is read: torch, jax and all
else that is heavy is imported inside ``attach`` and ``open``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from xlaprof.log import Follower, Reader
from xlaprof.vocabulary import Vocabulary

if TYPE_CHECKING:  # who reads a recording does not load what writes one
    from xlaprof.recording.attached import Attachment
    from xlaprof.recording.recorder import Recorder


class LiveSource(Protocol):
    """Something that can be observed from inside the process."""

    @property
    def name(self) -> str:
        """What it is called in messages and in the log: ``torch.compile``."""

    @property
    def module(self) -> str:
        """The module whose import gives it something to observe: ``torch._dynamo``; ``""``: attach at once."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of advice on what it observes."""

    def attach(self, rec: Recorder, /) -> Attachment | None:
        """Observe the process for ``rec``, until the attachment is detached; None where there is nothing to observe.

        Runs in the thread that imports :attr:`module`, or starts the recording. What it raises is one line on stderr.
        """


class FileSource(Protocol):
    """A kind of recording on disk."""

    @property
    def name(self) -> str:
        """What it is called in messages: ``xlaprof log``."""

    @property
    def looks_for(self) -> str:
        """What a path must have to be recognised, for the message where none is: ``events as lines of JSON``."""

    def recognises(self, path: str, head: bytes) -> bool:
        """Whether ``path`` is of this kind, by its content: ``head`` is how it begins, decompressed where it is gzip.

        Of a folder ``head`` is empty, and the source may list it.
        """

    def open(self, path: str) -> Reader:
        """Raises :class:`xlaprof.LogError`, one line, where nothing can be read."""

    def follow(self, path: str) -> Follower | None:
        """For ``xlaprof live``; None where such recordings do not grow."""
