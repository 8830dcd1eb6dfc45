"""Pruning: weights, heads and neurons that become 0 while a model is trained, and stay 0."""
