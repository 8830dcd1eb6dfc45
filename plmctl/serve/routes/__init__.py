"""The addresses of a server, one file for each published form."""
