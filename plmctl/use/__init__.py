"""A trained model at work: it embeds, generates, predicts, labels, and is attacked."""
