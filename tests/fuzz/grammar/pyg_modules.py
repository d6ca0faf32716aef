"""Layers of PyG that are no convolutions: norms, row-wise and graph-wide."""

from tests.fuzz.operation import family

NORMS = """
gnn.BatchNorm | self.norm{k}({h}) | self.norm{k} = gnn.BatchNorm({w})
gnn.LayerNorm node | self.norm{k}({h}) | self.norm{k} = gnn.LayerNorm({w}, mode="node")
gnn.LayerNorm graph | self.norm{k}({h}) | self.norm{k} = gnn.LayerNorm({w}, eps=0.1)
gnn.GraphNorm | self.norm{k}({h}) | self.norm{k} = gnn.GraphNorm({w}, eps=0.1)
gnn.PairNorm | self.norm{k}({h}) | self.norm{k} = gnn.PairNorm(eps=0.1)
gnn.PairNorm per row | self.norm{k}({h}) | self.norm{k} = gnn.PairNorm(scale_individually=True, eps=0.1)
gnn.InstanceNorm | self.norm{k}({h}) | self.norm{k} = gnn.InstanceNorm({w}, eps=0.1)
gnn.InstanceNorm of statistics | self.norm{k}({h}) | self.norm{k} = gnn.InstanceNorm({w}, track_running_stats=True)
gnn.MeanSubtractionNorm | self.norm{k}({h}) | self.norm{k} = gnn.MeanSubtractionNorm()
gnn.GraphSizeNorm | self.norm{k}({h}) | self.norm{k} = gnn.GraphSizeNorm()
gnn.DiffGroupNorm | self.norm{k}({h}) | self.norm{k} = gnn.DiffGroupNorm({w}, groups=2)
gnn.MessageNorm | self.norm{k}({h}, {g} + 0.5) | self.norm{k} = gnn.MessageNorm(learn_scale=True)
gnn.norm with batch | self.norm{k}({h}, torch.zeros({h}.size(0), dtype=torch.long)) | self.norm{k} = gnn.GraphNorm({w}, eps=0.1)
gnn.SumAggregation of all | {h} + (self.pool{k}({h}, torch.zeros({h}.size(0), dtype=torch.long), dim_size=1) * 0.01).tanh() | self.pool{k} = gnn.SumAggregation()
gnn.AttentionalAggregation | {h} + self.pool{k}({h}, torch.zeros({h}.size(0), dtype=torch.long), dim_size=1) | self.pool{k} = gnn.AttentionalAggregation(nn.Linear({w}, 1))
gnn.DeepSetsAggregation | {h} + (self.pool{k}({h}, torch.zeros({h}.size(0), dtype=torch.long), dim_size=1) * 0.01).tanh() | self.pool{k} = gnn.DeepSetsAggregation(nn.Linear({w}, {w}), None)
gnn.GRUAggregation | {h} + self.pool{k}({h}, torch.zeros({h}.size(0), dtype=torch.long), dim_size=1) | self.pool{k} = gnn.GRUAggregation({w}, {w})
gnn.PositionalEncoding | {h} + self.code{k}({h}[:, 0])[:, :{w}] | self.code{k} = gnn.PositionalEncoding({w} + {w} % 2)
"""

family("norms of PyG", NORMS)
