"""How quantities, places and strings are written: the one set of formatters of report, JSON, terminal UI and messages.

Pure functions that import nothing of xlaprof. ``quantities``, ``strings`` and ``parts`` need the standard library only;
``cells`` measures terminal cells with rich.
"""
