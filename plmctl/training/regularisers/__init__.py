"""Additions to the gradient of the loss in an update: adversarial training of word vectors."""
