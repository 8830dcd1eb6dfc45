"""Embeddings of knowledge graphs: scores, losses, training batches, ranks."""
