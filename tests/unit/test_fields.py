"""What `apply_delta` is said to take by name is what a `GraphDelta` has."""

import dataclasses

from pyg_incremental import GraphDelta
from pyg_incremental.delta.describe import Fields


def test_the_fields_are_those_of_a_delta():
    named = [field.name for field in dataclasses.fields(GraphDelta)]
    assert sorted(Fields.__annotations__) == sorted(named[3:])
