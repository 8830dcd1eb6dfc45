"""The command line: one Typer app, help and examples."""
