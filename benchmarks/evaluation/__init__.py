"""The figures of layer-wise evaluation: node orders, sizes, parts of the nodes."""
