"""What a model computes, as steps that the engine knows how to keep current."""
