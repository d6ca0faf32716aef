"""A call of a model: what its tensors are, and how it is put together again."""
