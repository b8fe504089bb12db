"""The same time settled many intervals at once, with numpy, for long recordings: the totals are the same, to the bit.

Import it only where there is much to do: numpy takes a tenth of a second to import, and need not be installed.
"""
