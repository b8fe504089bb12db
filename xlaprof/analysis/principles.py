"""What the diagnosis takes for much, for often and for most: one scale, with which every rule measures.

A rule that needs a number of its own has it in its own file, with what is special about it. The others ask the same
few questions: is this worth the reader's time, is it a habit, is it most of the whole, can it be measured at all.
"""

from __future__ import annotations

# -- is it worth the reader's time? Shares of the run, or of the time of its steps.

TRIFLE = 0.005  # what came once and cost less is not told
WORTH_SAYING = 0.01  # a smaller part of a sum is left out of its text
NOTICED = 0.02  # two runs of one program differ by as much: less is no gain that anybody could measure
FELT = 0.05  # worth a change of the program
DEAR = 0.10  # worth it though there is a reason for what costs that
LONG_S = 5.0  # seconds: in a short run less is a large share, too, and nobody changes a program for it
LARGE = 0.25  # even what was chosen, and costs that, may have been chosen unawares

# -- is it a habit? Times, steps, graphs, turns of a loop.

HABIT = 3  # once or twice is an accident, the set-up, or the warm-up
MANY = 10  # nobody wrote that often by hand, and what lasts so long stays

# -- is it most of the whole? Shares of a time, of steps or operations that belong together.

LITTLE = 0.1  # so few steps are for the program's log, and so short a time needs no word
PART = 0.2  # as much deserves a word of its own, beside what takes the most
MOST = 0.5  # it gives the whole its name
NEARLY_ALL = 0.8  # what is left is where a sample fell, or the first and last turn

# -- can it be measured?

STOPS_NS = 20_000  # a wait for the device that is shorter is the time of a call
GLANCE_NS = 10_000_000  # the idle sampler looks into a gap after so long: of shorter ones only the lines around tell
LOOKED_NS = 500_000_000  # of looks at the main thread, ten a second at most: fewer than five are chance

# -- how much does a reader take in?

NAMED = 3  # in a sentence
SHOWN = 8  # in a list
LISTED = 50  # in a table
KEPT = 256  # compared with each other, or remembered: with more the report would take long
