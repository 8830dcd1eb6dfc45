"""One file a command: its options, its examples, and what it calls."""
