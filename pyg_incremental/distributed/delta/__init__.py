"""A delta in global ids: packed, sent to whom it concerns, and looked at on arrival."""
