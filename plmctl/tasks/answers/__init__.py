"""Answers: losses and decisions that several tasks share."""
