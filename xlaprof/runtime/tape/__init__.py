"""Recording: the tape of each device, how it grows, and the graph that a barrier cuts from it."""
