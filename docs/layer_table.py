"""Write the table of layers into its page, from what the package itself says of them.

python docs/layer_table.py
"""

from collections import Counter
from pathlib import Path

from pyg_incremental import supported_layers

PAGE = Path(__file__).parent / "source" / "reference" / "supported_layers.md"
BEGIN, END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"


def table() -> str:
    """One line for each class, and how many there are of each scheme."""
    layers = supported_layers()
    count = Counter(layer.scheme for layer in layers)
    lines = [
        f"Of {len(layers)} classes: " + ", ".join(f"{n} {s}" for s, n in count.most_common()) + ".",
        "",
        "| layer | scheme | steps | what falls back, or why |",
        "|---|---|---|---|",
    ]
    for layer in layers:
        name = f"`{layer.name}`" + (f" ({layer.model})" if layer.model else "")
        steps = layer.steps.replace("|", "\\|")
        lines.append(f"| {name} | {layer.scheme} | {steps or '-'} | {layer.note or '-'} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page with the table of today."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written())
