"""Events of long recordings counted a batch at a time, with numpy: the totals are the same, to the bit.

Import it only where there is much to do: numpy takes a tenth of a second to import, and need not be installed.
"""
