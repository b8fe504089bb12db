"""How a new graph differs from the graphs that ran before."""
