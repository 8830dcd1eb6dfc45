"""Layouts: the rows of examples, with special tokens, marks and windows."""
