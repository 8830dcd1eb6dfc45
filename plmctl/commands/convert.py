"""`plmctl convert`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plmctl.cli.former import choose_place
from plmctl.cli.options import Plugin
from plmctl.cli.report_options import Facts
from plmctl.config.command import About, Tool

if TYPE_CHECKING:
    from plmctl.storage.pushing import Push


def list_families() -> tuple[str, list[tuple[str, str]]]:
    """List the families that can be converted, for --help."""
    from plmctl.interop.listing import list_systems

    return "Families", list_systems()


In = Annotated[
    str, typer.Argument(metavar="IN", help="A run, a checkpoint or a Hugging Face folder.")
]
Former = Annotated[str | None, typer.Argument(metavar="", show_default=False, hidden=True)]
Out = Annotated[
    str | None, typer.Option("-o", "--out", metavar="DIR", help="The folder to write (no default).")
]
To = Annotated[
    Literal["hf", "plmctl", "peft", "sentence-transformers", "onnx", "openvino", "ctranslate2"]
    | None,
    typer.Option(
        "--to",
        help="The layout to write (default: plmctl for a longer or a compact model); peft: the"
        " weights of LoRA, its relatives or IA3, for the model in Hugging Face's layout;"
        " sentence-transformers: a model of sentences with its pooling; onnx, openvino: a"
        " fine-tuned model as one file; ctranslate2: a model that writes. Their answers are"
        " compared with PyTorch's.",
    ),
]
Int8 = Annotated[
    bool, typer.Option("--int8", help="For another library: numbers of 8 bits in matrix products.")
]
Keep = Annotated[
    float | None,
    typer.Option(
        "--keep",
        min=0,
        max=1,
        help="The least share of the score on dev that 8 bits keep (default: 0.99).",
    ),
]
Labelled = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="For another library: the labelled file to score (default: dev of the task). For a"
        " decoder without a task, lines of text.",
    ),
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        "--calibrate",
        metavar="FILE",
        help="For openvino with 8 bits: texts of the usual kind, as plmctl predict reads them"
        " (default: 256 rows drawn from the training set).",
    ),
]
Network = Annotated[
    Literal["model", "generator", "encoder"],
    typer.Option(
        "--part",
        help="The network to convert: the generator of an ELECTRA run, or the encoder of an"
        " encoder-decoder, which then reads alone.",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        help="Make an encoder with learned positions, or that of an encoder-decoder, read rows of"
        " so many tokens (Longformer, LED; default: as it is).",
    ),
]
Reach = Annotated[
    int | None,
    typer.Option(
        "--reach",
        help="For a longer model: tokens that each token sees to either side (default: as before,"
        " or as many as an old row has, at most 256).",
    ),
]
Without = Annotated[
    Literal["copies", "projections"] | None,
    typer.Option(
        "--without",
        help="For a longer model, in ablations: draw the new positions; no projections of their"
        " own for global tokens (default: with both).",
    ),
]
Compact = Annotated[
    bool,
    typer.Option(
        "--compact",
        help="Leave out heads, neurons and residual columns that pruning has made 0: the model"
        " computes the same in less time.",
    ),
]
Bits = Annotated[
    int | None,
    typer.Option(
        "--bits",
        min=2,
        max=8,
        help="Store matrices and tables in so many bits a weight, by a codebook for each (k-means)"
        " (default: as they are). The model reads them as fp32: only its file is smaller.",
    ),
]
Group = Annotated[
    int,
    typer.Option(
        "--group",
        min=0,
        help="Weights in few bits that share a scale; 0: by a codebook instead (default: 0).",
    ),
]

Pushed = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="OWNER/NAME",
        help="Push the folder to this repository of the Hugging Face hub, with the token of hf auth"
        " login (default: nothing is pushed). It needs no --out.",
    ),
]
Private = Annotated[bool, typer.Option("--private", help="Make the new repository private.")]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace the files of a repository of this name; its earlier commits stay.",
    ),
]
Shown = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="With --push: print the files, their sizes and the repository. Write and push"
        " nothing, and use no network.",
    ),
]


GRAPHS = ("onnx", "openvino")  # layouts of one graph, without weights for PyTorch
LIBRARY = {"hf": "transformers", None: "plmctl"}  # in a card; others: the layout
CARDS = ("hf", "sentence-transformers")  # layouts that have a card, pushed or not
LIBRARIES = (*GRAPHS, "ctranslate2")  # and of models that write


def refuse_options(
    to: str | None, part: str, max_length: int | None, *, int8: bool, data: str | None
) -> None:
    """UsageError for options that the layout does not have."""
    from plmctl.core.errors import UsageError

    kinds = ", ".join(LIBRARIES)
    for option, used in (("--int8", int8), ("--data", data is not None)):
        if used and to not in LIBRARIES:
            value = f"{option} {shlex.quote(data)}" if option == "--data" and data else option
            raise UsageError(f"{option} is of --to {kinds}\n  fix: --to onnx {value}")
    for option, used in (("--part", part != "model"), ("--max-length", max_length is not None)):
        if used and to in LIBRARIES:
            first = f"convert --to plmctl {option} first, then fine-tune and convert that model"
            raise UsageError(f"{option} makes a model to train\n  fix: {first}")


def refuse_lengths(max_length: int | None, *, reach: int | None, without: str | None) -> None:
    """UsageError for options of a longer model without its length."""
    from plmctl.core.errors import UsageError

    for option, value in (("--reach", reach), ("--without", without)):
        if value and max_length is None:
            fix = f"--max-length 4096, or no {option}"
            raise UsageError(f"{option} is of a longer model\n  fix: {fix}")


def refuse_eight_bits(
    to: str | None, *, int8: bool, keep: float | None, calibrate: str | None
) -> None:
    """UsageError for options of 8 bits without these, or in another layout."""
    from plmctl.core.errors import UsageError

    if keep is not None and not int8:
        raise UsageError("--keep is of --int8: fp32 has the answers of PyTorch\n  fix: --int8")
    if calibrate is not None and not (int8 and to == "openvino"):
        what = "--calibrate is of --to openvino --int8, which fixes the ranges of inputs"
        fix = f"--to openvino --int8 --calibrate {shlex.quote(calibrate)}"
        raise UsageError(f"{what}\n  fix: {fix}")


def refuse_packing(
    to: str | None, max_length: int | None, *, compact: bool, bits: int | None, group: int
) -> None:
    """UsageError for a compact or a packed model in a layout that has none, or no layout."""
    from plmctl.core.errors import UsageError

    if to is None and max_length is None and not compact and bits is None and not group:
        raise UsageError("Missing option '--to'\n  fix: --to hf, or --to plmctl")
    if group and bits is None:
        raise UsageError("--group is of --bits\n  fix: --bits 4")
    if bits is not None and to not in (None, "plmctl"):
        raise UsageError(f"--to {to} has no layout for --bits\n  fix: --to plmctl")
    if compact and to in LIBRARIES:
        first = "convert --to plmctl --compact first, then convert that folder"
        raise UsageError(f"--compact writes a model in plmctl's layout\n  fix: {first}")


def find_deployment(to: str | None, calibrate: str | None) -> Callable[..., None] | None:
    """The function that writes a layout of another library; None for other layouts."""
    from plmctl.use.deploying import deploy
    from plmctl.use.deploying_writer import deploy_writer

    found: dict[str | None, Callable[..., None]] = {"ctranslate2": deploy_writer}
    found |= {name: partial(deploy, calibrate=calibrate) for name in GRAPHS}
    return found.get(to)


def find_converter(
    to: str | None,
    longer: Mapping[str, Any],
    part: str,
    compact: bool,
    packed: tuple[int | None, int],
    plugins: tuple[str, ...],
    card: Callable[..., str],
) -> Callable[..., None]:
    """The function that writes a layout of PyTorch.

    Args:
        to: The layout.
        longer: `max_length`, `reach` and `without` of a longer model.
        part: The network to convert.
        compact: Whether zeros are left out.
        packed: The bits of a weight, and weights that share a scale.
        plugins: The packages outside plmctl that the model may be made of.
        card: Writes the model card of a layout that has one.
    """
    from plmctl.artifacts.convert import convert as convert_model
    from plmctl.artifacts.packing import pack

    without = longer["without"]
    return partial(
        convert_model,
        to=to or "plmctl",
        **{**longer, "without": (without,) if without else ()},
        part=part,
        compact=compact,
        packing=partial(pack, *packed),
        plugins=plugins,
        card=card,
    )


def refuse_facts(fact: list[str] | None, to: str | None, push: str | None) -> None:
    """UsageError for facts of a card that is not written."""
    from plmctl.core.errors import UsageError

    if fact and push is None and to not in CARDS:
        raise UsageError(f"--fact is of a model card\n  fix: --to {' or --to '.join(CARDS)}")


def find_push(push: str | None, *, dry_run: bool, **options: bool) -> Push | None:
    """The repository to push to; UsageError for options of a push without one."""
    from plmctl.core.errors import UsageError
    from plmctl.storage.pushing import Push

    if push is not None:
        return Push(push, **options)
    for name, used in {**options, "dry_run": dry_run}.items():
        if used:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is of --push\n  fix: --push OWNER/NAME {option}")
    return None


class ConvertCommand(Tool):
    """Convert a model to or from Hugging Face's layout, to another library, or to longer rows.

    Weights, settings and tokenizer are converted.
    """

    about = About(
        "convert",
        place=90,
        examples=(
            "plmctl convert runs/first --to hf --out exported",
            "plmctl convert exported --to plmctl --out imported",
        ),
        section=list_families,
    )

    @staticmethod
    def perform(
        source: In,
        former: Former = None,
        out: Out = None,
        to: To = None,
        part: Network = "model",
        max_length: MaxLength = None,
        reach: Reach = None,
        without: Without = None,
        int8: Int8 = False,
        keep: Keep = None,
        data: Labelled = None,
        calibrate: Calibrate = None,
        compact: Compact = False,
        bits: Bits = None,
        group: Group = 0,
        push: Pushed = None,
        private: Private = False,
        overwrite: Overwrite = False,
        dry_run: Shown = False,
        fact: Facts = None,
        plugin: Plugin = None,
    ) -> None:
        from plmctl.core.errors import UsageError
        from plmctl.report.card import add_card, make_card
        from plmctl.report.wishes import parse_facts
        from plmctl.storage.paths import refuse_file_name

        place = choose_place(f"convert {source}", former, out)
        pushed = find_push(push, private=private, overwrite=overwrite, dry_run=dry_run)
        if place is None and pushed is None:
            raise UsageError("Missing option '--out': the folder to write\n  fix: --out converted")
        if place is not None:
            refuse_file_name(place, "--out")
        refuse_facts(fact, to, push)
        refuse_lengths(max_length, reach=reach, without=without)
        refuse_options(to, part, max_length, int8=int8, data=data)
        refuse_packing(to, max_length, compact=compact, bits=bits, group=group)
        refuse_eight_bits(to, int8=int8, keep=keep, calibrate=calibrate)
        plugins, library = tuple(plugin or ()), LIBRARY.get(to, to or "")
        known: dict[str, Any] = {
            "facts": parse_facts(fact or []),
            "library": library,
            "plugins": plugins,
        }
        if (deploy := find_deployment(to, calibrate)) is not None:
            least = 0.99 if keep is None else keep
            deploy = partial(deploy, to=to, int8=int8, keep=least, data=data, plugins=plugins)
        else:
            longer = {"max_length": max_length, "reach": reach, "without": without}
            card = partial(make_card, **known)
            deploy = find_converter(to, longer, part, compact, (bits, group), plugins, card)
        model = Path(source).expanduser()
        folder = None if place is None else Path(place).expanduser()
        if pushed is not None:
            describe = partial(add_card, source=model, **known)
            pushed.deliver(partial(deploy, model), describe, folder, dry_run=dry_run)
        elif folder is not None:
            deploy(model, folder)
