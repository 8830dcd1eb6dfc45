"""What an update does beside the gradient of its loss: adversarial training of word vectors."""
