"""What every room stands on: errors, batches, draws, declared parts, values of settings."""
