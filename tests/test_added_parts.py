"""A part that is added to the repository needs its file, its YAML and its test, and nothing else:
in a copy of the tree with one more part in each slot, a recipe and a study, the tests that go over
all parts pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import added_parts

ROOT = Path(__file__).parents[1]
# bytecode comes along, which compiling anew takes longer than the tests; not while it is written
LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv", ".*_cache", "*.pyc.*", "site", "build", "dist", "demo", "shared")
)
GENERAL = (
    *(
        "test_imports",
        "config/test_part_declarations",
        "test_recipes",
        "test_readme",
        "runs/test_contract",
    ),
    *(
        "commands/test_help_command",
        "runs/test_leaks",
        "commands/test_mixture_command",
        "commands/test_recipes_command",
    ),
    *(
        "commands/test_ablate_command",
        "study/test_shipped_studies",
        "test_packaging",
        "config/test_fields",
    ),
    *("tasks/test_task_conf", "config/test_own_fields", "noise/test_every_noise_masking"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the parts of `added_parts`, a recipe and a study."""
    copy = tmp_path_factory.mktemp("copy") / "tree"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    recipe = (ROOT / "recipes/roberta.yaml").read_text(encoding="utf-8")
    study = (ROOT / "recipes/studies/bert_masks.yaml").read_text(encoding="utf-8")
    files = {
        **added_parts.CODE,
        **added_parts.SETTINGS,
        **added_parts.tests(),
        "recipes/other_roberta.yaml": re.sub(
            r"pretrain roberta\b", "pretrain other_roberta", recipe
        ),
        "recipes/studies/other_masks.yaml": study.replace(
            "ablate bert_masks", "ablate other_masks"
        ),
    }
    for path, text in files.items():
        assert not (copy / path).exists()
        (copy / path).parent.mkdir(exist_ok=True)
        (copy / path).write_text(text, encoding="utf-8")
    return copy


def assert_tests_pass(tree: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, "-m", "not slow and not gpu"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.slow  # test_examples.py has parts of ones own
def test_added_parts_are_known_and_their_tests_are_run_together(tree: Path) -> None:
    """Files of one name in two folders, shuffled, with a part of what goes over all parts."""
    own = sorted(added_parts.tests(), key=lambda path: path[::-1])
    names = "thirds or every_third or doubled or other_ or learned_anew or halved"
    assert_tests_pass(
        tree,
        *own,
        "tests/test_recipes.py",
        "tests/tasks/test_task_conf.py",
        *("-k", f"test_it_is_a_part or (({names}) and not falls)"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERAL)
def test_what_goes_over_all_parts_passes(name: str, tree: Path) -> None:
    assert_tests_pass(tree, f"tests/{name}.py")
