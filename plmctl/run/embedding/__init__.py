"""`plmctl embed`: vectors of texts, out of a model or a file."""
