"""Rows that one rank needs of another one: ghosts, and when they are exchanged."""
