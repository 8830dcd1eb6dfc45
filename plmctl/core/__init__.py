"""The base of all rooms: errors, batches, draws, declared parts, values of settings."""
