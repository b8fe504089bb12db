"""Evidence: what the totals of a settled run say about the program, shared by several kinds of findings."""
