"""The partitioned mode: what ranks send, how fast they are, and how they would scale."""
