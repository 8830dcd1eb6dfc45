"""An update is the same in one pass, in micro-batches and in two processes: for every objective and
every task, without dropout, and with it where the loss contrasts vectors.

Random numbers that are not those of a row differ with the cut: masks of dropout, samples of a
sampled softmax, moves of positions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from plmctl.config.compose import compose
from plmctl.config.recipes import conf_dir
from plmctl.training.processes.launch import launch
from tests.runs.test_resume_every_kind import EXTRA
from tests.task_matrix import SHORT, Matrix
from tests.task_samples import list_tasks, read_settings
from tests.test_recipes import BESIDE, RECIPES, SMALL, TAUGHT, tokenizer_of
from tests.training.cut_updates import WHOLE, Found, find_updates, measure_difference

ROOT = Path(__file__).parents[2]
CLOSE = 1e-6  # of the gradient, computed in float64 where the code does not say float32
# what is compared with rows of others
COMPARING = ("simcse", "infoword", "erica", "ernie_thu", "libert", "bertram")
COMPARING_TASKS = ("bi_encoder", "simcse_nli")
OBJECTIVES = {
    **{recipe: (recipe,) for recipe in COMPARING},
    **{
        recipe: (recipe,)
        for recipe in (
            *("bert", "albert", "gpt2", "electra", "luke", "wklm", "elmo", "sensebert"),
            *("sentilare", "spanbert", "structbert", "tsdae", "unicoder", "xlnet", "bart"),
            *("mass_translation", "al_rfou_char"),
        )
    },
    **{
        name: ("electra", f"objective=[{name}]")
        for name in ("adversarial", "all_tokens_mlm", "replace_mlm", "two_stage")
    },
    "rtd": ("roberta", *BESIDE["objective=rtd"], "eval.noise=${noise}"),
    "clm_adaptive": ("gpt", *BESIDE["objective=clm_adaptive"]),
    "knowbert": ("knowbert",),
    "paraphrase": ("unicoder", "format=paraphrase_pair", "objective=[mlm,paraphrase]"),
}
MORE = sorted({*RECIPES} - {*OBJECTIVES, *TAUGHT, "distilbert", "kepler"})
# draws that belong to a pass, not to a row
FIXED = {"universal_transformer": ["position.shift=0"]}


def words_of(name: str, tokens_of: Callable[..., Path], folder: Path) -> list[str]:
    recipe, *words = OBJECTIVES.get(name, (name,))
    given = tokenizer_of(recipe, tokens_of)
    home = [f"run.dir={folder / name}", "eval.rows=8", *FIXED.get(name, []), *words]
    return [recipe, *SMALL, *EXTRA.get(recipe, []), *given, *home]


def assert_same(found: dict[str, Found], *others: str, close: float = CLOSE) -> None:
    for other in others:
        apart = measure_difference(found["whole"], found[other])
        assert all(value < close for value in apart.values()), (other, apart)


@pytest.mark.slow  # the others run what it counts
def test_every_objective_is_here() -> None:
    names = {each for recipe, *words in OBJECTIVES.values()
             for each in compose("pretrain", recipe, words).objective or ()}  # fmt: skip
    every = {file.stem for file in (conf_dir() / "objective").glob("*.yaml")}
    named = {"word_tags": "sentilare", "clm_adaptive": "clm_adaptive"}  # otherwise in the run
    # there are no links between the few documents here, and no second knowledge base
    assert every - names == {*named, "kepler", "meaning_linking"}


@pytest.mark.parametrize("name", COMPARING)
def test_rows_that_are_compared(name: str, tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    words = words_of(name, tokens_of, tmp_path)
    found = find_updates("pretrain", words, {"whole": WHOLE, "three": 3, "one": 1})
    assert_same(found, "three", "one")


@pytest.mark.sampled(17)
@pytest.mark.parametrize("name", [*sorted({*OBJECTIVES} - {*COMPARING}), *MORE])
def test_an_objective(name: str, tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    words = words_of(name, tokens_of, tmp_path)
    assert_same(find_updates("pretrain", words, {"whole": WHOLE, "three": 3}), "three")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return Matrix(tmp_path_factory.mktemp("matrix"), list_tasks())


def words_of_task(task: str, matrix: Matrix, folder: Path) -> list[str]:
    sample, known = matrix.samples[task], read_settings(task)
    short = [f"task.{key}={value}" for key, value in SHORT.items() if key in known]
    writes = "max_target" in known
    checkpoint = matrix._pretrain("bart" if writes else "bert")
    home = [f"task={task}", f"checkpoint={checkpoint}", f"run.dir={folder / task}"]
    return [*home, "train.epochs=null", "train.batch_size=8", *short, *sample.words]


TASKS = [task for task in list_tasks() if not task.startswith("ax")]


@pytest.mark.parametrize("task", COMPARING_TASKS)
def test_texts_that_are_compared(task: str, matrix: Matrix, tmp_path: Path) -> None:
    words = words_of_task(task, matrix, tmp_path)
    assert_same(
        find_updates("finetune", words, {"whole": WHOLE, "three": 3, "one": 1}), "three", "one"
    )


@pytest.mark.sampled(17)
@pytest.mark.parametrize("task", sorted({*TASKS} - {*COMPARING_TASKS}))
def test_a_task(task: str, matrix: Matrix, tmp_path: Path) -> None:
    if task not in matrix.samples:
        pytest.skip("has no files of its own")
    if not read_settings(task):
        pytest.skip("is only evaluated, as held_out is")
    words = words_of_task(task, matrix, tmp_path)
    assert_same(find_updates("finetune", words, {"whole": WHOLE, "three": 3}), "three")


def compare_processes(
    commands: dict[str, tuple[str, Sequence[str]]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command in one process, and all of them in two, which start once."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = folder / "commands.json"
    file.write_text(json.dumps(commands))
    assert launch(2, [str(file), str(folder)], module="tests.training.cut_updates") == 0
    for name, (verb, words) in commands.items():
        found = find_updates(verb, [*words, f"run.dir={folder}/{name}-one"], {"whole": WHOLE})
        assert_same({**found, **torch.load(folder / f"{name}.pt")}, "processes", "both")


# two that compare vectors, one that shares candidates, one with samples
FEW = ("simcse", "erica", "ernie_thu", "electra")


@pytest.mark.slow  # in one process micro-batches cut the same rows
def test_rows_that_are_compared_in_two_processes(
    matrix: Matrix, tokens_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: dict[str, tuple[str, Sequence[str]]] = {
        name: ("pretrain", words_of(name, tokens_of, tmp_path)) for name in FEW
    }
    commands["bi_encoder"] = ("finetune", words_of_task("bi_encoder", matrix, tmp_path))
    compare_processes(commands, tmp_path, monkeypatch)


@pytest.mark.slow  # micro-batches of one process stay
def test_everything_in_two_processes(
    matrix: Matrix, tokens_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = sorted({*OBJECTIVES} - {*FEW})
    commands: dict[str, tuple[str, Sequence[str]]] = {
        name: ("pretrain", words_of(name, tokens_of, tmp_path)) for name in others
    }
    commands |= {
        task: ("finetune", words_of_task(task, matrix, tmp_path))
        for task in sorted({*TASKS} & {*matrix.samples} - {"bi_encoder"})
    }
    compare_processes(commands, tmp_path, monkeypatch)
