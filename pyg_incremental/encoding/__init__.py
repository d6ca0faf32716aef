"""Values and tensors as bytes that execute nothing; files that are whole or not there."""
