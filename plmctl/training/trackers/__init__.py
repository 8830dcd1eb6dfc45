"""Services that show the numbers of a run: Weights & Biases, MLflow, Trackio."""
