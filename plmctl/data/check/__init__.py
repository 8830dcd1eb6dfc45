"""Checks of data before a long run: `text` (documents), `tokens` (token directories), `labels`
(tasks).
"""
