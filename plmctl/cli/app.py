"""The `plmctl` command: compose the config, check it, hand it to `plmctl.commands.<verb>.run`.
Imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from plmctl.cli import overview as cli_help
from plmctl.cli import recipes as cli_recipes
from plmctl.cli.console import ConfigDir, Json, Plugin
from plmctl.cli.console import command as _command
from plmctl.cli.console import reported as _reported
from plmctl.cli.console import see_plugins as _see_plugins
from plmctl.cli.help import Verb
from plmctl.core.children import follow_starter
from plmctl.core.errors import UsageError
from plmctl.core.terminal import tell
from plmctl.report import options
from plmctl.run.compose import Flags, composed
from plmctl.run.lesson import as_training

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[./FILE.yaml] KEY=VALUE", show_default=False, hidden=True),
]
RecipeWords = Annotated[
    list[str] | None, typer.Argument(metavar="RECIPE | KEY=VALUE", show_default=False, hidden=True)
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the resolved config and stop.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print parameters, compute, memory and time; write nothing."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in run.dir with its saved config.")
]
Preview = Annotated[
    int,
    typer.Option(
        "--preview",
        metavar="N",
        min=0,
        help="Show N rows before and after noise, with targets, and stop.",
    ),
]
Multirun = Annotated[
    bool,
    typer.Option(
        "-m", "--multirun", help="Sweep: key=a,b or choice(), range(), glob(); Hydra's grammar."
    ),
]
Submission = Annotated[
    bool, typer.Option("--submission", help="Write the files that GLUE's server takes.")
]


def pretrain(
    words: RecipeWords = None,
    print_config: PrintConfig = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    preview: Preview = 0,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Train a model on text, from a recipe (default: bert)."""
    flags = {"dry_run": dry_run, "resume": resume, "preview": preview, "json": as_json}
    _main("pretrain", words, config_dir, plugin, print_config, multirun, **flags)


def finetune(
    words: Words = None,
    print_config: PrintConfig = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Train a checkpoint, or a fresh model, on a labelled task."""
    flags = {"dry_run": dry_run, "resume": resume, "json": as_json}
    _main("finetune", words, config_dir, plugin, print_config, multirun, **flags)


def distill(
    words: RecipeWords = None,
    print_config: PrintConfig = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Train a smaller model to answer as teacher=<run or Hugging Face folder> does: on text, or
    with task= on labelled data.
    """
    flags = {"dry_run": dry_run, "resume": resume, "json": as_json}
    _main("distill", words, config_dir, plugin, print_config, multirun, **flags)


def evaluate(
    words: Words = None,
    as_json: Json = False,
    submission: Submission = False,
    print_config: PrintConfig = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Score a checkpoint on its task, label new lines (input=), or measure perplexity (task=lm)."""
    _main(
        "eval",
        words,
        config_dir,
        plugin,
        print_config,
        multirun,
        json=as_json,
        submission=submission,
    )


def tokenize(
    words: Words = None,
    print_config: PrintConfig = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Train a tokenizer on text, or take one, and write token shards."""
    _main("tokenize", words, config_dir, plugin, print_config, multirun)


def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH | KEY=VALUE", show_default=False, hidden=True),
    ] = None,
    as_json: Json = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="A page: a .md or a .html file.")
    ] = None,
    print_config: PrintConfig = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Look at text, a token directory, or with task=<name> labelled files, before a long run:
    plain verdicts.
    """
    _main("data", pathless(words or [], out), config_dir, plugin, print_config, False, json=as_json)


def augment(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Write a larger training set: copies of its texts in which a masked language model replaces
    words (TinyBERT).
    """
    _main("augment", words, config_dir, plugin, print_config, False, json=as_json)


def rewrite(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Write a training set whose targets a teacher wrote (sequence-level distillation)."""
    _main("rewrite", words, config_dir, plugin, print_config, False, json=as_json)


def pathless(words: list[str], out: str | None = None) -> list[str]:
    """The words of `data check` with PATH as the setting that it stands for: the task's files,
    or text or tokens.
    """
    slot = "task" if any(word.startswith("task=") for word in words) else "data"
    found = [
        word if "=" in word or word.startswith("~") else f"{slot}.path={word}" for word in words
    ]
    return [*found, *([f"out={out}"] if out else [])]


def ablate(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY | KEY=VALUE", show_default=False, hidden=True),
    ] = None,
    print_config: PrintConfig = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print jobs and cost; run nothing.")
    ] = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Compare arms over seeds: run a study, and write a table of means, differences and
    verdicts.
    """
    launcher = tuple(
        word for word in words or [] if word.startswith(("hydra/launcher=", "hydra.launcher."))
    )
    words = [word for word in words or [] if word not in launcher]
    _main(
        "ablate",
        words,
        config_dir,
        plugin,
        print_config,
        False,
        dry_run=dry_run,
        json=as_json,
        launcher=launcher,
    )


def embed(words: Words = None, print_config: PrintConfig = False, plugin: Plugin = None) -> None:
    """Write contextual embeddings of the lines of a file."""
    _main("embed", words, None, plugin, print_config, False)


def generate(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    plugin: Plugin = None,
) -> None:
    """Let a model write: what follows a prompt, or what a source becomes; an encoder fills the
    masks of a text.
    """
    _main("generate", words, None, plugin, print_config, False, json=as_json)


def convert(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A run, checkpoint or Hugging Face folder.")
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The folder to write.")],
    to: Annotated[Literal["hf", "plmctl"], typer.Option("--to", help="The layout of OUT.")],
    part: Annotated[
        Literal["model", "generator"],
        typer.Option("--part", help="Of an ELECTRA run: what to take."),
    ] = "model",
    plugin: Plugin = None,
) -> None:
    """Convert weights, config and tokenizer to or from Hugging Face's layout.

    Families: BERT (SpanBERT, UniLM), RoBERTa, ALBERT, ELECTRA, GPT, GPT-2, BART, Marian, T5, XLNet.
    """
    from omegaconf import OmegaConf

    with _reported():
        cfg = OmegaConf.create(
            {
                "input": os.path.expanduser(source),
                "out": os.path.expanduser(out),
                "to": to,
                "part": part,
            }
        )
        raise typer.Exit(_command("convert", cfg, _flags("convert", plugin)))


def average(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    last: Annotated[
        int, typer.Option("--last", metavar="N", help="How many checkpoints, the newest first.")
    ] = 5,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="A new folder; by default RUN-average."),
    ] = None,
    kept: Annotated[
        bool,
        typer.Option(
            "--kept", help="The average that the run itself kept (distill=self_ensemble)."
        ),
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Average the weights of a run's last checkpoints into one (train.keep_last says how many a
    run keeps).
    """
    from omegaconf import OmegaConf

    with _reported():
        folder = os.path.expanduser(run).rstrip("/")
        place = os.path.expanduser(out or f"{folder}-average")
        cfg = OmegaConf.create({"run": folder, "out": place, "last": last, "kept": kept})
        raise typer.Exit(_command("average", cfg, _flags("average", plugin)))


def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN... | STUDY", help="Run directories, or a study's folder."),
    ],
    out: options.Out = "report.html",
    markdown: options.Markdown = False,
    attention: options.Heads = None,
    sentence: options.Sentences = None,
    probe: options.Probes = None,
    card: options.Card = None,
    fact: options.Facts = None,
    plugin: Plugin = None,
) -> None:
    """Write one page, readable offline, on one or several runs, or on a study."""
    from omegaconf import OmegaConf

    with _reported():
        wishes = {
            "heads": attention,
            "sentences": sentence or [],
            "probes": probe or [],
            "card": card,
            "facts": fact or [],
        }
        folders = [os.path.expanduser(folder) for folder in runs]
        cfg = OmegaConf.create(
            {"runs": folders, "out": os.path.expanduser(out), "markdown": markdown, **wishes}
        )
        raise typer.Exit(_command("report", cfg, _flags("report", plugin)))


VERBS: dict[str, Callable[..., None]] = {
    "tokenize": tokenize,
    "data check": check,
    "data augment": augment,
    "data rewrite": rewrite,
    "pretrain": pretrain,
    "finetune": finetune,
    "distill": distill,
    "eval": evaluate,
    "convert": convert,
    "ablate": ablate,
    "embed": embed,
    "generate": generate,
    "average": average,
    "report": report,
    "recipes ls": cli_recipes.ls,
    "recipes show": cli_recipes.show,
    "recipes cp": cli_recipes.cp,
    "recipes run": cli_recipes.run,
    "help": cli_help.explain,
}


FRONTS = {"distill": as_training}  # of commands whose config is another's: the flags of that one
COMMANDS = Path(__file__).parents[1] / "commands"


def make_app(commands: Path = COMMANDS) -> typer.Typer:
    """The Typer application: one command for every verb that has a file in `commands`; of "data
    check" the file is data.py.
    """
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_about)
    groups: dict[str, typer.Typer] = {}
    for name, function in VERBS.items():
        verb, _, inner = name.partition(" ")
        if not (commands / f"{verb}.py").is_file():
            continue
        if inner and verb not in groups:
            groups[verb] = typer.Typer(no_args_is_help=True, help=f"Commands on {verb}.")
            app.add_typer(groups[verb], name=verb)
        (groups[verb] if inner else app).command(inner or verb, cls=Verb)(function)
    return app


def main() -> None:
    follow_starter()
    make_app()(prog_name="plmctl")


def _about() -> None:
    """Pretrain, fine-tune, evaluate and convert language models, by configuration."""


def _main(
    verb: str,
    words: list[str] | None,
    config_dir: list[str] | None,
    plugin: list[str] | None,
    print_config: bool,
    multirun: bool,
    **flags: Any,
) -> None:
    with _reported():
        recipe, overrides = _sorted(words or [], resume=flags.get("resume", False))
        if verb == "pretrain" and recipe is None and not flags["resume"]:
            recipe = "bert"
        given = Flags(
            verb, recipe, tuple(overrides), tuple(config_dir or ()), tuple(plugin or ()), **flags
        )
        given = FRONTS[verb](given) if verb in FRONTS else given
        _see_plugins(given.plugins)
        raise typer.Exit(_go(given, print_config, multirun))


def _flags(verb: str, plugin: list[str] | None) -> Flags:
    """Of a command without settings: its plug-ins, which are there."""
    flags = Flags(verb, plugins=tuple(plugin or ()))
    _see_plugins(flags.plugins)
    return flags


def _go(flags: Flags, print_config: bool, multirun: bool) -> int:
    if multirun:
        from plmctl.jobs.sweep import sweep

        if flags.resume or print_config:
            raise UsageError(
                "-m/--multirun goes neither with --resume nor with --print-config:"
                " name one job's run.dir or settings"
            )
        return sweep(flags)
    if flags.resume:
        from plmctl.run.resume import resumed

        cfg, flags = resumed(flags)
        removed: list[str] = []
    else:
        made = composed(
            flags.verb,
            flags.recipe,
            flags.overrides,
            config_dirs=flags.config_dirs,
            plugins=flags.plugins,
        )
        cfg, removed = made.cfg, made.removed
    if print_config:
        from omegaconf import OmegaConf

        tell(
            "".join(f"# not used, its part is not chosen: {line}\n" for line in removed)
            + OmegaConf.to_yaml(cfg, resolve=True),
            end="",
        )
        return 0
    return _command(flags.command, cfg, flags)


def _sorted(words: list[str], *, resume: bool) -> tuple[str | None, list[str]]:
    """The recipe (the one word that is no override) and the overrides; with --resume the one
    word may be the run's folder.
    """
    bare = [word for word in words if "=" not in word and not word.startswith("~")]
    overrides = [word for word in words if word not in bare]
    if len(bare) > 1:
        raise UsageError(f"one recipe at a time, and settings as key=value: {' '.join(bare)}")
    if bare and resume and Path(bare[0]).is_dir():
        return None, [*overrides, f"run.dir={bare[0]}"]
    return (bare[0] if bare else None), overrides
