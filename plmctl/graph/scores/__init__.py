"""Scores of triples, one file each."""
