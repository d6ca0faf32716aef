"""Compiled loops of evaluation: which edges are drawn."""
