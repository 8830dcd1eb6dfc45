"""GPT (Radford et al., 2018) as `transformers` publishes it (`openai-gpt`)."""

from __future__ import annotations

from plmctl.core.errors import ConfigError
from plmctl.interop import gpt2
from plmctl.interop.family import Architecture, Family, Node, row_classes
from plmctl.interop.gpt2 import CELLS, CLM, GPT2Family, score_rules
from plmctl.interop.names import linear, same
from plmctl.interop.settings import Config, Numbers, activation

TIES = {"lm_head.weight": "tokens_embed.weight"}
AFN = activation("afn", {"gelu": "gelu_tanh", "relu": "relu", "swish": "silu"})
SETTINGS = tuple(
    AFN if each.key == "activation_function" else each
    for each in gpt2.SETTINGS
    if each.key != "n_inner"
)


class GPTFamily(GPT2Family):
    """Post-norm decoder with learned positions and no last norm, `OpenAIGPT...`; `gelu` in its
    files is the tanh form.
    """

    model_type = "openai-gpt"
    systems = ("GPT",)
    recipes: tuple[str, ...] = ("gpt",)
    hub: tuple[tuple[str, int], ...] = (("openai-community/openai-gpt", 117),)
    stated = SETTINGS
    rules = (
        same("backbone.embedding.token.weight", "tokens_embed.weight"),
        same("backbone.position.table.weight", "positions_embed.weight"),
        *CELLS,
        *linear("backbone.stack.blocks.a.{i}.norm_sum", "h.{i}.ln_1"),
        *linear("backbone.stack.blocks.f.{i}.norm_sum", "h.{i}.ln_2"),
    )
    architectures = (
        *row_classes("OpenAIGPTForSequenceClassification", score_rules),
        Architecture("OpenAIGPTLMHeadModel", ("clm",), CLM),
        Architecture("OpenAIGPTModel", bare=True),
    )
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        numbers = Family.numbers(self, settings)
        return numbers.but(inner_width=4 * numbers.width)

    def settings(self, numbers: Numbers) -> Node:
        if numbers.inner_width != 4 * numbers.width:
            allowed = f"{4 * numbers.width}: 4 * size.width in every published GPT"
            raise ConfigError("size.inner_width", numbers.inner_width, allowed)
        return super().settings(numbers)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["model"]["stack"]["residual"]["_target_"] = "plmctl.nn.residual.PostNorm"
        return nodes
