"""What was trained beside a base that stays: read, joined with it, and written for `peft`."""
