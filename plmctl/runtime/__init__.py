"""Libraries that compute the answers of a trained model."""
