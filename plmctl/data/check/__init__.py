"""What a careful person looks for before a long run: `text` (documents), `tokens` (token
directories), `labels` (tasks).
"""
