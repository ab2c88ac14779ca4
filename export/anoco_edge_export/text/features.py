"""The features of prompts: `prompts.safetensors` in a bundle, two rows for each object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import UsageError
from anoco_edge_export.checkpoint import read_checkpoint
from anoco_edge_export.families import StateDict
from anoco_edge_export.recipe import Recipe, TextTower
from anoco_edge_export.text.prompts import prompts_of
from anoco_edge_export.text.tokenizer import Tokens, open_tokenizer
from anoco_edge_export.text.tower import encode_texts, random_text_state, text_state
from anoco_edge_export.weights import LoadedWeights


@dataclass(frozen=True)
class TokenizedPrompts:
    """The tokens of the prompts about each object, good and damaged, and who reads them."""

    tower: TextTower
    objects: dict[str, tuple[Tokens, Tokens]]


def tokenize_prompts(recipe: Recipe, objects: Sequence[str]) -> TokenizedPrompts | None:
    """Write and tokenize the prompts about these objects; None where there are none.

    This needs no weights, so that whatever is missing or wrong shows before they are loaded.
    """
    if not objects:
        return None
    if recipe.text is None:
        raise UsageError(
            f"{recipe.id} has no text side, so it takes no prompts",
            hint="leave out `prompts`, or pass `backbone=winclip-b-plus`",
        )
    written = {name: prompts_of(name) for name in objects}
    tokenizer = open_tokenizer(recipe.text.vocabulary, recipe.text.context)
    found = {
        name: (tokenizer(normal), tokenizer(anomalous))
        for name, (normal, anomalous) in written.items()
    }
    return TokenizedPrompts(recipe.text, found)


def prompt_file(recipe: Recipe, prompts: TokenizedPrompts, weights: LoadedWeights) -> bytes:
    """Return the content of `prompts.safetensors`: for each object a tensor of its name.

    Its two rows are the features of a good and of a damaged object: the mean of the normalized
    embeddings of all prompts, normalized, as CLIP averages prompts.
    """
    from safetensors.numpy import save

    state = _state(recipe, prompts.tower, weights)
    tensors = {
        name: np.stack([_mean(encode_texts(prompts.tower, state, tokens)) for tokens in pair])
        for name, pair in prompts.objects.items()
    }
    data: bytes = save(tensors)
    return data


def _state(recipe: Recipe, tower: TextTower, weights: LoadedWeights) -> StateDict:
    if weights.file is None:
        seed = int(weights.record.source.removeprefix("random:"))
        return random_text_state(tower, recipe.embedding, seed)
    given = read_checkpoint(weights.file)
    return text_state(tower, recipe.embedding, given, weights.file.name)


def _mean(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    rows = embeddings.astype(np.float64)
    mean = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)
