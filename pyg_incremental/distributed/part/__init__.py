"""What one rank stores, and how it takes its part of a delta."""
