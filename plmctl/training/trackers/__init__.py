"""What shows the numbers of a run elsewhere: Weights & Biases, MLflow."""
