"""Scores of predictions: pure functions, each with the name of its official scorer."""
