"""What a run reads: corpora, their tokens, the loaders of training and validation."""
