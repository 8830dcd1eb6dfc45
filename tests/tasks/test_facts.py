"""What a task states without a file: facts, what it requires of a model, lengths of rows."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import plmctl.tasks
from plmctl.tasks.classification import Classification
from plmctl.tasks.facts import RowLengths, TaskFacts
from plmctl.tasks.task import Task


def test_a_fact_outside_of_facts_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Old: state head, typed in `facts = TaskFacts\(...\)`"):

        class Old(Classification):
            head, typed = "class", "lines"


def test_labels_and_logits_are_called_as_the_head_unless_stated() -> None:
    assert TaskFacts(head="tag").logit_names == ("tag",)
    named = TaskFacts(head="mlm", own_label="class")
    assert (named.label_name, named.logit_names) == ("class", ("class",))
    assert TaskFacts(head="span", own_logits=("start", "end")).label_name == "span"


def test_task_has_few_members() -> None:
    """Facts are values: what is added to the interface of all tasks is a method that few lack. Six
    are about metrics: their direction, by which every tool chooses the best, unit and kind.
    """
    assert len([name for name in vars(Task) if not name.startswith("__")]) <= 32


def list_kinds(base: type[Task]) -> set[str]:
    """The names of the classes of tasks."""
    found = {each.__name__ for each in base.__subclasses__()}
    return found.union(*(list_kinds(each) for each in base.__subclasses__()))


def test_no_tool_asks_what_class_a_task_is_of() -> None:
    """Tools ask for facts and for capabilities: a task of a plug-in may have them, too."""
    for module in pkgutil.iter_modules(plmctl.tasks.__path__, "plmctl.tasks."):
        importlib.import_module(module.name)
    kinds, wrong = list_kinds(Task), []
    assert len(kinds) > 30
    package = Path(plmctl.__file__).parent
    for file in package.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source if any(kind in source for kind in kinds) else "")):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("isinstance", "issubclass"):
                walked = [each for arg in node.args[1:] for each in ast.walk(arg)]
                named = {each.id for each in walked if isinstance(each, ast.Name)}
                wrong += [f"{file.relative_to(package)}:{node.lineno}"] if named & kinds else []
    assert wrong == []


@pytest.mark.parametrize(
    ("lengths", "longest", "sides", "fitted"),
    [
        (RowLengths(128), 128, (128, 0), {"max_length": 60}),
        (RowLengths(256, 128), 384, (384, 0), {"max_length": 40, "max_target": 20}),
        (RowLengths(99, 1), 100, (100, 0), {"max_length": 59, "max_target": 1}),
        (RowLengths(40, 90, apart=True), 90, (40, 90), {"max_length": 40, "max_target": 60}),
    ],
)
def test_rows_are_read_and_written_within_their_lengths(
    lengths: RowLengths, longest: int, sides: tuple[int, int], fitted: dict[str, int]
) -> None:
    assert (lengths.longest, lengths.sides, lengths.fit(60)) == (longest, sides, fitted)
    if not lengths.apart:
        assert sum(fitted.values()) == 60
