"""Recorded operations: tensors, their storage, operators, the trie of traces, and the user's line."""
