"""Programs compiled before they are needed."""
