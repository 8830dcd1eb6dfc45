"""Files: written completely or not at all, read with clear errors, kept inside their folders."""
