"""What a command does not import, so that it starts quickly: by name, not by time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from plmctl.core import graphs

NO_WORK = {"torch", "numpy", "hydra", "omegaconf", "yaml", "rich", "pydantic", "multiprocessing"}
NO_WORK |= {"plmctl.config.schema", "plmctl.config.groups", "plmctl.config.compose"}
# of torch's compiler, which takes as long to import as all the rest of torch
COMPILER = {"torch._dynamo", "torch._inductor", "sympy", "torch.distributed.tensor", "torch.onnx"}
OTHERS = {"transformers", "tensorboard", "torch.utils.tensorboard", "matplotlib"}


def imported_by(*commands: str) -> list[set[str]]:
    """The modules that a process holds after each of these commands, one after the other."""
    code = "\n".join(
        [
            "import contextlib, sys",
            "from plmctl.__main__ import main",
            f"for line in {list(commands)!r}:",
            "    sys.argv = ['plmctl', *line.split()]",
            "    with contextlib.suppress(SystemExit): main()",
            "    print('imported', *sys.modules)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) >= len(commands), done.stderr
    return [set(line.split()) for line in lines if line.startswith("imported ")]


def test_help_imports_what_it_prints() -> None:
    (found,) = imported_by("--help")
    assert not found & NO_WORK


def test_help_of_a_command_imports_no_torch() -> None:
    (found,) = imported_by("pretrain --help")
    assert not found & {"torch", "numpy", "hydra"}


def test_a_shell_completes_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PLMCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "plmctl pretrain bert train.")
    monkeypatch.setenv("COMP_CWORD", "3")
    (found,) = imported_by("pretrain")
    assert not found & {"torch", "numpy", "hydra", "rich"}


@pytest.mark.slow  # a matter of time, not of results
def test_no_compiler_before_something_is_compiled(tmp_path: Path) -> None:
    tiny = f"train.steps=1 size=tiny tokenizer=char data.path={__file__} run.dir={tmp_path}/run"
    (dry_run,) = imported_by("pretrain xlnet --dry-run")
    training, resumed = imported_by(
        f"pretrain bert {tiny}", f"pretrain --resume train.steps=2 run.dir={tmp_path}/run"
    )
    assert (tmp_path / "run" / "checkpoints").is_dir()
    assert not dry_run & OTHERS  # it counts activations by tensors of torch's compiler
    assert not training & COMPILER
    assert (tmp_path / "run" / "checkpoints" / "step-2").is_dir()
    assert not resumed & COMPILER


@pytest.mark.slow  # a matter of time, not of results
def test_the_collector_never_looks_through_the_imports() -> None:
    code = """
import contextlib, gc, sys
from plmctl.__main__ import main

looked_through = []
def count(phase, info):
    compiler = "torch._dynamo" in sys.modules  # of the dry run, later
    if phase == "start" and "torch" in sys.modules and not compiler and info["generation"] == 2:
        looked_through.append(len(gc.get_objects()))
gc.callbacks.append(count)
looked_through.append(0)
sys.argv = "plmctl pretrain bert --dry-run".split()
with contextlib.suppress(SystemExit):
    main()
gc.collect()
print("objects", gc.get_freeze_count(), max(looked_through))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frozen, most = map(int, done.stdout.splitlines()[-1].split()[1:])
    assert most < frozen / 4, done.stdout


def is_traced() -> bool:
    """Whether a graph is being made of this."""
    return torch.compiler.is_compiling()


@graphs.outside_graphs
def is_traced_all_the_same() -> bool:
    return is_traced()


class Marked:
    """Has a marked method."""

    @graphs.outside_graphs
    def is_traced(self) -> bool:
        return is_traced()


def test_a_marked_function_runs_outside_of_graphs() -> None:
    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        found = [is_traced(), is_traced_all_the_same(), Marked().is_traced()]
        return [x + value for value in found]

    graphs.break_graphs()
    zero = torch.zeros(())
    assert [int(x) for x in compute(zero)] == [0, 0, 0]
    assert [int(x) for x in torch.compile(compute, backend="eager")(zero)] == [1, 0, 0]
