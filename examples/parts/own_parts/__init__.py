"""Parts of one's own, one file each: examples for the pages of docs/extend."""
