"""Adapters trained on a fixed base: their positions in the network, and how they are read."""
