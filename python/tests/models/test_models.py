# SPDX-License-Identifier: Apache-2.0
"""A dozen classes of try_models.py, each of which does something of its own with K and V."""
import pytest

pytest.importorskip("transformers")

import torch
from comparison import OWN, SHARED, compare, prompt
from small_models import all_classes, make_small
from try_models import read_table

torch.set_num_threads(1)
CLASSES = all_classes()
# Class, result, part of the reason.
EXPECTED = [
    ("LlamaForCausalLM", SHARED, ""),
    ("Gemma2ForCausalLM", SHARED, ""),
    ("GptOssForCausalLM", SHARED, ""),
    # They repeat, split or expand K or V after the cache.
    ("DiffLlamaForCausalLM", SHARED, "copies of K and V"),
    ("DogeForCausalLM", SHARED, "copies of K and V"),
    ("JetMoeForCausalLM", SHARED, "copies of K and V"),
    ("GPTNeoForCausalLM", SHARED, "copies of K and V"),
    # Its attention says that it is not causal; its mask is.
    ("BigBirdPegasusForCausalLM", SHARED, "copies of K and V"),
    # Layers with different numbers of heads; columns that are no tokens of the prompt.
    ("MiMoV2FlashForCausalLM", OWN, "its layers keep K and V of several shapes: "),
    ("CpmAntForCausalLM", OWN, "its cache has 44 columns for 12 tokens"),
    ("XLMWithLMHeadModel", OWN, ""),      # the reason depends on the version of transformers
    # Its cache drops what its mask shows.
    ("MoshiForCausalLM", OWN, "its mask is not of that window"),
    # Image-text classes, for text.
    ("Gemma3ForConditionalGeneration", SHARED, ""),
    ("LlavaForConditionalGeneration", SHARED, ""),
    # The factors of its rotary embedding change during the answer.
    ("Phi3ForCausalLM", "on the pool, not shared", "no salt"),
]


@pytest.mark.parametrize("name, result, reason", EXPECTED)
def test_class(name, result, reason):
    if name not in CLASSES:
        pytest.skip(f"transformers has no {name}")
    found = compare(name, make_small(name, CLASSES[name]))
    assert found.result == result, found.reason
    assert reason in found.reason


@pytest.mark.parametrize("name, argument", [
    ("Gemma3ForConditionalGeneration", "token_type_ids"), ("Qwen2VLForConditionalGeneration", "mm_token_type_ids")])
def test_types_of_text(name, argument):
    """What a processor returns for a text without images."""
    found = compare(name, make_small(name, CLASSES[name]), **{argument: torch.zeros_like(prompt())})
    assert found.result == SHARED, found.reason


def test_the_table_has_no_failure():
    table = read_table()
    assert len(table) > 200
    assert [name for name, (result, _) in table.items() if result == "FAILED"] == []
