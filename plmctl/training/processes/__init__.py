"""The processes of a run: their communication, and their start."""
