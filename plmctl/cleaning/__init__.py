"""Cleaning of text for pretraining: duplicates and documents of low quality leave it. Work is done
in parts, each of which is redone alone after a kill. It knows no configs.
"""
