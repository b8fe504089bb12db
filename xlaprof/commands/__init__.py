"""The verbs of the command line, one module each.

A verb is a module of this package: ``xlaprof report`` is ``commands/report.py``. Its docstring is its help (the
first line is its summary in ``xlaprof --help``), ``add_arguments(parser)`` declares its arguments and
``run(args)`` does the work and returns the exit code. Nothing else is to be registered, and a verb that is not
used is not imported. Modules whose name begins with an underscore are no verbs.
"""
