"""One call of one model kept current: how it starts, takes deltas, and is checked."""
