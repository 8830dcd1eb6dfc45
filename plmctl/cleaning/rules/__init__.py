"""Rules for documents, one a file."""
