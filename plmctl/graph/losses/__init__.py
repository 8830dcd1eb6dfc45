"""Losses of graph embeddings, one file each."""
