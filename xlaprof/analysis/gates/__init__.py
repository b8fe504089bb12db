"""Gates: budgets, limits, and the comparison of two runs."""
