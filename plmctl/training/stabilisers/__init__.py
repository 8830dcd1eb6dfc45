"""Methods against failures of fine-tuning a pretrained model, on few examples above all. They
change first weights, passes, gradients or losses, or the weights that are evaluated and saved.
"""
