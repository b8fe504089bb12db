"""Timed calls of compiled graphs: how much of the time they took, and what lies between the pieces of a function."""
