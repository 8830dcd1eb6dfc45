"""Losses of scored pairs of texts."""
