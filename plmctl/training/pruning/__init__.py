"""Pruning: weights, heads, neurons and columns that become 0 while a model is trained, and stay 0."""
