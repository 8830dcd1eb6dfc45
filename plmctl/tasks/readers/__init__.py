"""Readers: one published layout of files a module; a reader gives examples."""
