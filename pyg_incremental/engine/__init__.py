"""The loop over the steps of a program, for all rows or where something changed."""
