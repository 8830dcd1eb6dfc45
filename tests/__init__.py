"""The tests, a package: what several of them use is imported as `tests.<folder>.<module>`."""
