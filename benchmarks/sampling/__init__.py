"""Samples kept by events: how fast they follow and answer, and what models on them are worth."""
