"""What keeps the fine-tuning of a pretrained model from failing, on few examples above all: it
changes first weights, passes, gradients, losses, or which weights are evaluated and saved.
"""
