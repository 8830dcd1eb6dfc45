"""To and from published checkpoints: names (rules), family, bert, roberta, gpt1, gpt2, weights (files), hf (whole folders)."""
