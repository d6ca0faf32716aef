"""Few configurations in which any two settings meet."""

import itertools
import zlib


def rows(factors):
    """A covering array of strength two.

    Row by row the configuration that covers the most pairs that are still missing; of several the
    first one, so that the same factors always give the same rows.

    Args:
        factors: The settings that each factor may have, by its name.

    Returns:
        Dicts with one setting for each factor; any two settings of different factors are together
        in one of them at least.
    """
    every = [dict(zip(factors, row, strict=True)) for row in itertools.product(*factors.values())]
    missing = {pair for row in every for pair in pairs(row)}
    chosen = []
    while missing:
        best = max(every, key=lambda row: sum(pair in missing for pair in pairs(row)))
        chosen.append(best)
        missing -= set(pairs(best))
    return chosen


def pairs(row):
    """Any two settings of a configuration."""
    return list(itertools.combinations(row.items(), 2))


class Drawn:
    """Draws a configuration for each case, the same one whatever other cases there are.

    Args:
        factors: The settings of each factor but the formats, which are those of the case.
    """

    def __init__(self, factors):
        self.factors = factors
        self.known = {}

    def __call__(self, name, formats):
        found = self.known.get(formats)
        if found is None:
            found = self.known[formats] = rows({"fmt": formats, **self.factors})
        return found[zlib.crc32(f"drawn for {name}".encode()) % len(found)]
