"""A delta held against the graphs: slots of edges, and rows."""
