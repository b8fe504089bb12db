"""The analysis of long recordings: what the fold does event by event, done of many at once, with numpy.

What is known afterwards is the same, to the bit. Import it only where there is much to do: numpy takes a tenth of a
second to import, and need not be installed.
"""
