"""The input of a run: corpora, their tokens, the loaders of training and validation."""
