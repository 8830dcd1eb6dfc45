"""To and from published checkpoints: names (rules), family and its members, weights (files), hf
(whole folders).
"""
