"""What a user may change: described, read, resolved, and written down until it is in."""
