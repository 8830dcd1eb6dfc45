"""The interface of strategies: the trainer calls one, and never counts processes itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.objectives.base import Objective, Output
from plmctl.training.optim.groups import Named
from plmctl.training.processes.world import NOTHING, World

M = TypeVar("M", bound=nn.Module)
FindUnits = Callable[..., Mapping[nn.Module, Sequence[str]]]  # (model, objective)
# (model, objective, the processes of a team) -> a function that makes the cells whole again
Divide = Callable[..., Callable[[], None]]
Run = Callable[..., Output]  # (model, batch, state), as of an objective


def no_cells(*given: Any) -> Callable[[], None]:
    """A `Divide` that leaves all cells whole."""
    return lambda: None


class Strategy(ABC):
    """One training by all processes of `world`, each with its own rows of every batch.

    The order of calls: `place` every module, `unite` them, build the optimizer, `train` its
    parameters; then for each update `sum_counts`, `backward` for every micro-batch,
    `finish_backward`, `gradient_norm`, `clip`. Every process makes the same calls, but may have
    other numbers of micro-batches, as far as `passes` allows it, and other parameters without a
    gradient. An update is the same, to the order of summation, as that
    of one process with all rows. A tensor in a checkpoint is complete and has the name and shape of
    one process, so that a run can continue under any strategy.
    `tests/training/test_strategy.py` holds every strategy to this.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def place(self, module: M) -> M:
        """The module on this process's device, with the weights that it has in the main process."""

    @abstractmethod
    def unite(self, model: nn.Module, objective: Objective) -> Run:
        """The objective, as every micro-batch of training calls it; from here on the modules have
        the parameters that are trained.
        """

    @abstractmethod
    def passes(self, count: int) -> int:
        """How many passes this process makes in an update with `count` micro-batches of its own;
        those behind them count for nothing.
        """

    @abstractmethod
    def gathered(self) -> AbstractContextManager[Any]:
        """The time in which this process has whole weights and runs the model alone."""

    @abstractmethod
    def release(self) -> None:
        """Give the main process modules with whole weights, after the training; every process has
        to call it.
        """

    @abstractmethod
    def train(self, parameters: Sequence[nn.Parameter]) -> None:
        """Register the parameters that the optimizer changes, in the same order on every
        process.
        """

    @abstractmethod
    def sum_counts(
        self, counts: Mapping[str, int], also: Mapping[str, int] = NOTHING
    ) -> dict[str, int]:
        """Sums by name over all rows of the update, and of the numbers in `also` over all
        processes; PlmctlError if the names of processes differ.
        """

    @abstractmethod
    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of `loss` to that of this update; `last`: no micro-batch of this process
        comes after it.
        """

    @abstractmethod
    def finish_backward(self) -> None:
        """Wait until every parameter has the gradient of all rows; a parameter that no row used has
        None.
        """

    @abstractmethod
    def gradient_norm(self) -> Tensor:
        """The norm of the complete gradient as one vector, the same number on every process."""

    @abstractmethod
    def clip(self, norm: float, *, largest: float) -> None:
        """Multiply a gradient of length `norm` so that its length is at most `largest`."""

    @abstractmethod
    def module_tensors(
        self, module: nn.Module, *, without: nn.Module | None = None
    ) -> dict[str, Tensor]:
        """The tensors of a module for a checkpoint (`checkpoint.tensors_of`): complete on the main
        process, or on every process its share of them.
        """

    @abstractmethod
    def load_module(
        self,
        module: nn.Module,
        tensors: Mapping[str, Tensor],
        *,
        file: Path,
        without: nn.Module | None = None,
        elsewhere: Collection[str] = (),
    ) -> None:
        """The inverse; DataError naming `file` where a tensor is missing, left over or of another
        shape.

        Args:
            elsewhere: Tensors that the module has already, which may be absent.
        """

    @abstractmethod
    def optimizer_tensors(
        self, optimizer: Optimizer, parameters: Named, *, rows: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The optimizer's tensors for a checkpoint (`optim.state`): complete on the main process,
        or on every process its share of them.
        """

    @abstractmethod
    def load_optimizer(
        self,
        optimizer: Optimizer,
        parameters: Named,
        tensors: Mapping[str, Tensor],
        *,
        rows: Mapping[str, int],
    ) -> None:
        """The inverse; DataError for a tensor of a parameter that is not trained."""
