"""Runtimes: what computes the answers of a trained model."""
