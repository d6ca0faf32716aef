"""Shards and saved states on disk, a file for each rank and a manifest."""
