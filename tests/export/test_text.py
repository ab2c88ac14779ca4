"""Prompts are WinCLIP's, tokens are CLIP's, and the text side computes what its equations say."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import literal_winclip as literal
import numpy as np
import pytest
import torch
from tiny_clip import MERGES, TEXT, draw_open_clip, install_tiny_clip

from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge_export.recipe import TextTower, load_recipe
from anoco_edge_export.text import tokenizer
from anoco_edge_export.text.features import tokenize_prompts
from anoco_edge_export.text.prompts import prompts_of
from anoco_edge_export.text.tokenizer import Tokenizer, open_tokenizer, vocabulary_file
from anoco_edge_export.text.tower import encode_texts, random_text_state, text_shapes, text_state

TOWER = TextTower.model_validate(TEXT)


def test_there_are_the_prompts_of_the_paper() -> None:
    normal, anomalous = prompts_of("metal nut")
    assert (len(set(normal)), len(set(anomalous))) == (7 * 22, 4 * 22)
    good = ["nut", "flawless nut", "perfect nut", "unblemished nut"]
    good += [f"nut without {what}" for what in ("flaw", "defect", "damage")]
    bad = ["damaged nut", *(f"nut with {what}" for what in ("flaw", "defect", "damage"))]
    photos = ["cropped", "close-up", "bright", "dark", "jpeg corrupted", "blurry"]
    for states, prompts in ((good, normal), (bad, anomalous)):
        shown = [state.replace("nut", "metal nut") for state in states]
        assert {f"a {photo} photo of a {state}." for photo in photos for state in shown} | {
            f"a photo of the {size}{state}{purpose}."
            for state in shown
            for size, purpose in (
                *(("", ""), ("small ", ""), ("large ", "")),
                *(("", " for visual inspection"), ("", " for anomaly detection")),
            )
        } <= set(prompts)
    for prompt in (*normal, *anomalous):
        other = re.sub(r" of (a|the) ", lambda m: " of the " if m[1] == "a" else " of a ", prompt)
        assert other != prompt and other in (*normal, *anomalous)
    for wrong in ("", "Schraube, groß", "{}", "a  b", "<end_of_text>"):
        with pytest.raises(UsageError, match="is not the name of an object"):
            prompts_of(wrong)


def test_pairs_are_merged_by_rank_and_texts_are_framed() -> None:
    tokens = Tokenizer(MERGES, 12)
    photo, of, nu = 512 + 3, 512 + 4, 512 + 5
    letter = {char: ord(char) - ord("!") for char in "ants."}
    start, end = 512 + len(MERGES), 513 + len(MERGES)
    framed = [start, photo, of, 256 + letter["a"], nu, 256 + letter["t"], 256 + letter["."], end]
    assert tokens(["photo of  a NUt."]).tolist() == [framed + 4 * [0]]
    assert tokens.size == TEXT["vocabulary"]
    with pytest.raises(UsageError, match=r"has 13 tokens, the text side takes 12"):
        tokens(["nnnnnnnnnnn"])
    with pytest.raises(UsageError, match="not ASCII"):
        tokens(["größe"])


def test_a_missing_or_foreign_vocabulary_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: str) -> None:
        raise tokenizer.metadata.PackageNotFoundError

    monkeypatch.setattr(tokenizer.metadata, "files", absent)
    with pytest.raises(EnvironmentMissingError, match=r"open_clip_torch.*anoco-edge\[winclip\]"):
        vocabulary_file()
    entry = SimpleNamespace(name="other.txt.gz", locate=lambda: tmp_path)
    monkeypatch.setattr(tokenizer.metadata, "files", lambda _: [entry])
    with pytest.raises(EnvironmentMissingError, match="--force-reinstall open_clip_torch"):
        vocabulary_file()
    install_tiny_clip(monkeypatch, tmp_path)
    with pytest.raises(EnvironmentMissingError, match="is not CLIP's vocabulary"):
        open_tokenizer(TEXT["vocabulary"] + 9, 77)
    tokenizer.vocabulary_file().write_bytes(b"not a gzip file")
    with pytest.raises(EnvironmentMissingError, match="is not CLIP's vocabulary"):
        open_tokenizer(TEXT["vocabulary"], 77)


def test_the_text_side_equals_a_literal_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = install_tiny_clip(monkeypatch, tmp_path)
    weights = draw_open_clip()
    state = text_state(TOWER, recipe.embedding, _tensors(weights), "tiny")
    prompts = tokenize_prompts(recipe, ["bolt"])
    assert prompts is not None
    tokens = np.concatenate(prompts.objects["bolt"])[::11]
    found = encode_texts(TOWER, state, tokens)
    expected = [literal.read_text(weights, TOWER.heads, row) for row in tokens.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_file_without_a_text_side_is_refused() -> None:
    given = _tensors(draw_open_clip())
    del given["ln_final.bias"]
    with pytest.raises(UsageError, match=r"timm\.pth has no text side: ln_final\.bias is missing"):
        text_state(TOWER, 12, given, "timm.pth")
    given = _tensors(draw_open_clip())
    with pytest.raises(UsageError, match=r"text_projection of shape \(16, 12\), expected \(16, 9"):
        text_state(TOWER, 9, given, "other.pth")
    given["ln_final.bias"][3] = float("nan")
    with pytest.raises(UsageError, match=r"NaN or infinity in ln_final\.bias"):
        text_state(TOWER, 12, given, "other.pth")


def test_prompts_are_for_backbones_with_a_text_side() -> None:
    assert tokenize_prompts(load_recipe("clip-b-plus"), []) is None
    with pytest.raises(UsageError, match="clip-b-plus has no text side"):
        tokenize_prompts(load_recipe("clip-b-plus"), ["bolt"])


def test_random_weights_are_the_same_for_the_same_seed() -> None:
    first, again, other = (random_text_state(TOWER, 12, seed) for seed in (1, 1, 2))
    assert {k: tuple(v.shape) for k, v in first.items()} == text_shapes(TOWER, 12)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["text_projection"], other["text_projection"])


@pytest.mark.full
def test_tokens_and_embeddings_are_those_of_open_clip() -> None:
    """The real text side with random weights; nothing is downloaded."""
    open_clip = pytest.importorskip("open_clip")
    recipe = load_recipe("winclip-b-plus")
    assert recipe.text is not None
    prompts = tokenize_prompts(recipe, ["metal nut", "2nd o'clock-hand x9"])
    assert prompts is not None
    model = open_clip.create_model("ViT-B-16-plus-240", pretrained=None).eval()
    state = text_state(recipe.text, recipe.embedding, model.state_dict(), "open_clip")
    for name, pair in prompts.objects.items():
        for texts, tokens in zip(prompts_of(name), pair, strict=True):
            assert open_clip.tokenize(texts).tolist() == tokens.tolist()
        with torch.no_grad():
            expected = model.encode_text(torch.from_numpy(pair[1][:20])).numpy()
        found = encode_texts(recipe.text, state, pair[1][:20])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def _tensors(weights: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(value.copy()) for key, value in weights.items()}
