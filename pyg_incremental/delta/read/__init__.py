"""A delta read without looking at an edge: who is meant, and whether all of it fits."""
