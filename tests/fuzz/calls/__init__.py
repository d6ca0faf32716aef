"""Random calls: objects of PyG, models that read them in many ways, and deltas."""
