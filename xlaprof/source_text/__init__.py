"""The source text around a line of the program: the line itself, the loops around it, what takes the value it binds.

By indentation, without parsing: right for code as people write it. Reads files: not for hot paths.
"""
