"""Adapters trained beside a fixed base: where they sit, and how they are read."""
