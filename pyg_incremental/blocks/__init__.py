"""Layer-wise evaluation: an executor of a program that computes all rows, or some, block by block.

The approach is that of DGI (Yin et al., "DGI: Easy and Efficient Inference for GNNs", KDD 2023).
"""

from pyg_incremental.blocks.evaluate import evaluate

__all__ = ["evaluate"]
