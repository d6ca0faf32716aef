"""From a model to its program."""
