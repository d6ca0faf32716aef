"""Compiled loops around a compiled plan: what an update may write to, noted and put back."""
