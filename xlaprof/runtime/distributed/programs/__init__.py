"""Programs over all ranks: collectives on the tape, and the agreement of the ranks on what they run."""
