"""How often each of several tasks is trained."""
