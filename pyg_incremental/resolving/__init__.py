"""Holding a delta against the graphs, before anything is touched."""
