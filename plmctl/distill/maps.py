"""Layer maps: the layer of the teacher for each layer of the student, `uniform`, `last`, `skip`, or
a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plmctl.core.errors import ConfigError, nearest

# the name of a map, or for each layer of the student the layer of the teacher
Layers = str | list[int]
# (layer of the student, layer of the teacher): 0 is the embedding output, 1 the first layer
Pair = tuple[int, int]

# (m, M layers of the student, N of the teacher) -> layer of the teacher
MAPS: dict[str, Callable[[int, int, int], int]] = {
    # TinyBERT (Jiao et al., 2020, arXiv:1909.10351, sec. 3.1), where M divides N
    "uniform": lambda m, M, N: m * N // M,
    "last": lambda m, M, N: N - M + m,  # PKD-Last (Sun et al., 2019, arXiv:1908.09355, sec. 3.2)
    # PKD-Skip: every k-th from the bottom, also where M does not divide N
    "skip": lambda m, M, N: m * (N // M),
}


def make_layer_map(layers: Layers, *, student: int, teacher: int) -> list[Pair]:
    """(m, g(m)) for m = 1 .. `student` layers; g(m) is one of the `teacher` layers, or 0 in a list:
    the embedding output.

    Raises:
        ConfigError: if the map does not exist for these numbers of layers.
    """
    if not isinstance(layers, str):
        return list(enumerate(_check_list(list(layers), student, teacher), 1))
    if layers not in MAPS:
        raise ConfigError(
            "layers",
            layers,
            f"one of {', '.join(MAPS)}{nearest(layers, MAPS)}, or {_as_list(student, teacher)}",
        )
    if student > teacher:
        allowed = (
            f"a list: the student's {student} layers are more than the teacher's {teacher},"
            " and no map by name fits"
        )
        raise ConfigError("layers", layers, allowed, fix=f"layers={_suggest(student, teacher)}")
    if layers == "uniform" and teacher % student:
        allowed = (
            f"skip, last or a list: the student's {student} layers do not divide the teacher's"
            f" {teacher}"
        )
        raise ConfigError("layers", layers, allowed, fix=f"layers={_suggest(student, teacher)}")
    return [(m, MAPS[layers](m, student, teacher)) for m in range(1, student + 1)]


def _check_list(layers: list[int], student: int, teacher: int) -> Sequence[int]:
    if len(layers) != student:
        allowed = (
            f"{_as_list(student, teacher)}, and these are {len(layers)}; by name: {', '.join(MAPS)}"
        )
        raise ConfigError("layers", layers, allowed, fix=f"layers={_suggest(student, teacher)}")
    if wrong := [layer for layer in layers if not 0 <= layer <= teacher]:
        missing = ", ".join(map(str, wrong))
        allowed = (
            f"the teacher has layers 1 to {teacher} (0: the embedding output), and no {missing}; by"
            f" name: {', '.join(MAPS)}"
        )
        raise ConfigError("layers", layers, allowed, fix=f"layers={_suggest(student, teacher)}")
    return layers


def _as_list(student: int, teacher: int) -> str:
    return (
        f"a list of {student} of the teacher's layers 1 to {teacher},"
        " one for each layer of the student"
    )


def _suggest(student: int, teacher: int) -> str:
    """The list nearest to a uniform map."""
    return f"[{','.join(str(max(1, round(m * teacher / student))) for m in range(1, student + 1))}]"
