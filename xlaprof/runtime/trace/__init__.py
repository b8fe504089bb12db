"""What a recorded operation is: tensors, their storage, operators, the trie of traces, and the user's line."""
