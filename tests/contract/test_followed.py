"""What a model's `forward` says is what counts, whatever it is: writes, sizes, branches, state."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import scatter

from tests.followed import Followed
from tests.zoo import CHANNELS

pytestmark = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")

MANY = 300  # more nodes than any constant of the models below
FAR = 300  # how much larger features become than all that the model was first called on


class Between(nn.Module):
    """Two convs and, between them, `h` as the function leaves it, or what it returns."""

    def __init__(self, function):
        super().__init__()
        self.first, self.last = GCNConv(CHANNELS, 6), GCNConv(6, 4)
        self.function = function

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        found = self.function(h, x, edge_index)
        return self.last(h if found is None else found, edge_index)


class After(nn.Module):
    """One conv, and what the function makes of its rows."""

    def __init__(self, function):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 6)
        self.function = function

    def forward(self, x, edge_index):
        return self.function(self.conv(x, edge_index), x, edge_index)


def named(functions):
    return pytest.mark.parametrize("function", functions, ids=lambda f: f.__name__)


# Writes ###########################################################################################


def clamp_(h, x, edge_index):
    h.clamp_(-50, 50)


def nan_to_num_(h, x, edge_index):
    h = (h + 50).sqrt()
    torch.nan_to_num_(h)
    return h


def relu_of_functional(h, x, edge_index):
    h = h + 50
    F.relu(h, inplace=True)
    return h


def hardtanh_of_functional(h, x, edge_index):
    F.hardtanh(h, -50, 50, inplace=True)


def masked_fill_(h, x, edge_index):
    h.masked_fill_(h > 50, 50.0)


def index_add_(h, x, edge_index):
    h.index_add_(0, edge_index[1], F.relu(h - 50)[edge_index[0]])


def of_torch(h, x, edge_index):
    torch.clamp_(h, -50, 50)


def copy_(h, x, edge_index):
    h.copy_(h.clamp(-50, 50))


UNUSED = [clamp_, nan_to_num_, relu_of_functional, hardtanh_of_functional, masked_fill_, index_add_,
          of_torch, copy_]  # fmt: skip


@named(UNUSED)
def test_a_write_whose_result_is_not_used(function, seed):
    Followed(Between(function), scale=FAR, seed=seed).walk()


def out_itself(h, x, edge_index):
    torch.clamp(h, -50, 50, out=h)


def type_as(h, x, edge_index):
    h.type_as(x).clamp_(-50, 50)


def to_its_dtype(h, x, edge_index):
    h.to(x.dtype).clamp_(-50, 50)


def contiguous(h, x, edge_index):
    h.contiguous().clamp_(-50, 50)


def transposed(h, x, edge_index):
    h.t().clamp_(-50, 50)


def one_of_a_split(h, x, edge_index):
    h.split(3, dim=-1)[0].clamp_(-50, 50)


def a_part_by_narrow(h, x, edge_index):
    h.narrow(1, 0, 3).clamp_(-50, 50)


def detached(h, x, edge_index):
    h.detach().clamp_(-50, 50)


def under_two_names(h, x, edge_index):
    g = h.view_as(h)
    g -= F.relu(h - 50)


ALIASES = [out_itself, type_as, to_its_dtype, contiguous, transposed, one_of_a_split,
           a_part_by_narrow, detached, under_two_names]  # fmt: skip


@named(ALIASES)
def test_a_write_through_another_name(function, seed):
    Followed(Between(function), scale=FAR, seed=seed).walk()


# Branches #########################################################################################


def is_a_tensor(h, x, edge_index):
    return h.clamp(-50, 50) if isinstance(h, Tensor) else h


def is_no_tensor(h, x, edge_index):
    return h if not isinstance(h, Tensor) else h.clamp(-50, 50)


def of_type_tensor(h, x, edge_index):
    return h.clamp(-50, 50) if type(h) is Tensor else h


def by_torch_is_tensor(h, x, edge_index):
    return h.clamp(-50, 50) if torch.is_tensor(h) else h


def edges_are_a_tensor(h, x, edge_index):
    return h.clamp(-50, 50) if isinstance(edge_index, Tensor) else h


@named([is_a_tensor, is_no_tensor, of_type_tensor, by_torch_is_tensor, edges_are_a_tensor])
def test_a_branch_on_the_type(function, seed):
    Followed(Between(function), scale=FAR, seed=seed).walk()


# Sizes ############################################################################################


def two_parts(h, x, edge_index):
    return torch.cat([h[:60] * 2, h[60:]])


def two_parts_of_rows(h, x, edge_index):
    return torch.cat([x[:60], x[60:] * 2]) @ h[:5, :5].tanh()


def first_rows(h, x, edge_index):
    return h[:100]


def mean_of_the_first(h, x, edge_index):
    return h - h[:60].mean(0)


def sum_of_a_split(h, x, edge_index):
    return h + h.split(60)[0].sum(0)


def distances_to_the_first(h, x, edge_index):
    # Not by a matrix product, which is off by the root of rounding where two rows are equal.
    return torch.cdist(h, h[:32], compute_mode="donot_use_mm_for_euclid_dist")


def padded_to_a_length(h, x, edge_index):
    return F.pad(h[:50], (0, 0, 0, 10)).sum(0) + h


@named([two_parts, two_parts_of_rows, first_rows, mean_of_the_first,
        sum_of_a_split, distances_to_the_first, padded_to_a_length])  # fmt: skip
def test_a_constant_is_not_the_number_of_nodes(function, seed):
    Followed(After(function), nodes=MANY, seed=seed).walk()


def masked_mean(h, x, edge_index):
    return h - h[x[:, 0] < 50].mean(0)


def masked_rows(h, x, edge_index):
    return h[x[:, 0] < 50]


def repeated_mean(h, x, edge_index):
    times = (x[:, 0] > 50).long() + 1
    return h + torch.repeat_interleave(x, times, 0).mean(0).sum()


def rows_that_are_not_zero(h, x, edge_index):
    return h + x[(x[:, 0] < 50).nonzero().view(-1)].mean(0).sum()


def scattered(h, x, edge_index):
    return scatter(h[edge_index[0]], edge_index[1])


@named([masked_mean, masked_rows, repeated_mean, rows_that_are_not_zero, scattered])
def test_a_size_that_depends_on_values(function, seed):
    Followed(After(function), scale=FAR, seed=seed).walk()


# The dimension of a module ########################################################################


class OnAVector(nn.Module):
    """A module that works along the only dimension there is; it counts where rows stand out."""

    def __init__(self, module):
        super().__init__()
        self.conv, self.module = GCNConv(CHANNELS, 1), module

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).squeeze(-1)
        return torch.where(h > 50, self.module(h), torch.zeros_like(h))


@pytest.mark.parametrize("module", [nn.Softmax(-1), nn.LogSoftmax(-1), nn.Softmin(-1)], ids=str)
def test_softmax_along_the_nodes(module, seed):
    Followed(OnAVector(module), scale=FAR, seed=seed).walk()
