"""Import and export of published checkpoints: names (rules), family and its members, weights
(files), hf (complete folders).
"""
