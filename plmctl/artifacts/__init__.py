"""Models from wherever they lie: built, opened, changed, and written elsewhere."""
