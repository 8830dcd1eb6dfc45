"""`plmctl distill`: teachers and their student."""
