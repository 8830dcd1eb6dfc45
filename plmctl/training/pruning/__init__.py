"""Pruning: weights, heads, neurons and columns become 0 in training, and stay 0."""
