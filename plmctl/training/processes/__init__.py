"""The processes of a run: how they find each other, and how they are started."""
