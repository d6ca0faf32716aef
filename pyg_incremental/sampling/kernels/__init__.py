"""Compiled loops of samples that events keep: keys, rows, expansion."""
