"""Events in, totals out: one pass, bounded memory."""
