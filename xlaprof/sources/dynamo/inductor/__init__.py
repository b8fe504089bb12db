"""What inductor tells of a graph: its code, and what its key in inductor's cache is made of."""
