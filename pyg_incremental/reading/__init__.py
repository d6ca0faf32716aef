"""Reading a delta: what it says, without looking at any edge."""
