"""Events of long recordings counted a batch at a time, with numpy: the totals are the same, to the bit.

Import this package only for many events: numpy takes a tenth of a second to import, and need not be installed.
"""
