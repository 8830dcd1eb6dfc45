"""When and where the checkpoints of a run are saved: now, or in the background."""
