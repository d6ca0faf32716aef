"""How ranks talk to each other: communicators, and what is said in one round."""
