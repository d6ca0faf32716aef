"""A state on disk: what is in it, how it is written, and what is believed of it."""
