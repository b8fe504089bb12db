"""What findings are made from: facts of a settled run."""
