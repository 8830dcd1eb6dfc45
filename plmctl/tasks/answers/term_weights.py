"""The weights of the losses of a task with several."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plmctl.core.errors import ConfigError, nearest


def read_weights(
    given: Mapping[str, float], terms: Collection[str], *, default: float = 1.0
) -> dict[str, float]:
    """The weight of each of `terms`; ConfigError for the name of another one."""
    for name in given:
        if name not in terms:
            allowed = f"weights of {', '.join(terms)}{nearest(name, list(terms))}"
            raise ConfigError("task.weights", name, allowed)
    return {name: given.get(name, default) for name in terms}
