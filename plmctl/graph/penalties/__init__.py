"""Penalties on the size of vectors."""
