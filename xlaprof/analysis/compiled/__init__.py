"""What a backend of ``torch.compile`` made of the program's graphs."""
