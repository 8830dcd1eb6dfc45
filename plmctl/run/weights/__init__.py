"""Models from wherever they lie: read, changed, and written elsewhere."""
