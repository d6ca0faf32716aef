"""Makes a failing trial small while it fails in the same way."""

from dataclasses import replace

from tests.fuzz.trial import run_trial, with_deltas

SIZES = ((3, 3), (6, 8), (12, 20), (30, 60), (60, 120))


class Minimiser:
    """Leaves out what is not needed for a failure.

    Args:
        trial: A trial that fails, its deltas drawn.
        outcome: How it failed.
        most: How many runs it may take.
    """

    def __init__(self, trial, outcome, most=150):
        self.trial, self.outcome, self.left = trial, outcome, most

    def small(self):
        """The smallest failing trial found, and its outcome."""
        self._fewer_deltas()
        before = None
        while before != self.trial:
            before = self.trial
            self._fewer_statements()
        self._smaller_graph()
        self._fewer_deltas()
        self._smaller_deltas()
        self._plain_options()
        return self.trial, self.outcome

    def _fails(self, trial):
        """Take a smaller trial over if it fails like the one at hand."""
        if self.left <= 0:
            return False
        self.left -= 1
        try:
            outcome = run_trial(trial)
        except Exception:  # the deltas do not fit any more
            return False
        if (outcome.kind, outcome.sort) != (self.outcome.kind, self.outcome.sort):
            return False
        self.trial, self.outcome = with_deltas(trial, outcome.deltas), outcome
        return True

    def _fewer_deltas(self):
        deltas = self.trial.deltas
        if not deltas or self._fails(with_deltas(self.trial, ())):
            return
        if len(deltas) > 1 and self._fails(with_deltas(self.trial, deltas[-1:])):
            return
        for at in reversed(range(len(deltas) - 1)):
            kept = self.trial.deltas
            self._fails(with_deltas(self.trial, kept[:at] + kept[at + 1 :]))

    def _fewer_statements(self):
        for at in reversed(range(len(self.trial.model.statements) - 1)):
            model = self.trial.model.without(at)
            if model is not None:
                self._fails(replace(self.trial, model=model))

    def _smaller_graph(self):
        recipe = self.trial.recipe
        kinds = self.trial.kinds
        for nodes, edges in SIZES:
            if nodes >= recipe.nodes:
                return
            smaller = replace(recipe, nodes=nodes, edges=edges)
            deltas = None if self.trial.deltas else ()
            if self._fails(replace(self.trial, recipe=smaller, deltas=deltas, kinds=kinds)):
                return

    def _smaller_deltas(self):
        for at, delta in enumerate(self.trial.deltas):
            for key in list(delta):
                delta = self.trial.deltas[at] if at < len(self.trial.deltas) else {}
                less = {name: value for name, value in delta.items() if name != key}
                deltas = self.trial.deltas
                self._fails(with_deltas(self.trial, (*deltas[:at], less, *deltas[at + 1 :])))

    def _plain_options(self):
        if self.trial.options:
            self._fails(replace(self.trial, options={}))
