"""What can be observed, live or on disk, besides the embedded runtime: one file or folder for each source.

:mod:`.protocol` says what a source is; :mod:`.registry` finds them all; :mod:`.attaching` attaches the live ones to
recordings; :mod:`.files` finds the one that reads a path.
"""
