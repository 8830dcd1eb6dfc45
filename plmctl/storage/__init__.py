"""Files: written whole or not at all, read with sentences about what is wrong, kept inside."""
