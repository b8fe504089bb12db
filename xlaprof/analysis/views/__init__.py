"""A run for those who look into it: its details as values, its steps in order, a timeline in cells."""
