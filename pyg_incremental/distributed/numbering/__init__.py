"""Global ids, the small numbers that a rank knows them by, and who owns them."""
