"""How steps run that are no aggregations: row maps, and what runs on all rows."""
