"""Tiny models of Hugging Face with random weights, and inputs for them, padded where they take that."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 99,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 32}
BOTH_SIDES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
PICTURES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip

# class, config, its options, number of attentions
FAMILIES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "bert": ("BertModel", "BertConfig", SMALL, 2),
    "roberta": ("RobertaModel", "RobertaConfig", SMALL, 2),
    "distilbert": ("DistilBertModel", "DistilBertConfig", {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32, "vocab_size": 99}, 2),  # noqa: E501
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}, 2),  # noqa: E501
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, 2),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, 2),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 3}, 2),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 4, "sliding_window": 3, "attn_logit_softcapping": 0.5}, 2),  # noqa: E501
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", GROUPED | {"head_dim": 4, "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1}, 2),  # noqa: E501
    "t5": ("T5ForConditionalGeneration", "T5Config", {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4, "vocab_size": 99, "decoder_start_token_id": 0}, 6),  # noqa: E501
    "bart": ("BartForConditionalGeneration", "BartConfig", BOTH_SIDES | {"max_position_embeddings": 32}, 6),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", BOTH_SIDES | {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 12}, 6),  # noqa: E501
    "vit": ("ViTModel", "ViTConfig", PICTURES, 2),
    "clip": ("CLIPModel", "CLIPConfig", {"text_config": SMALL | {"max_position_embeddings": 16}, "vision_config": PICTURES}, 4),  # noqa: E501
}  # fmt: skip
# these have no sdpa: what it lacks is what they need
EAGER_ONLY = {"gemma2", "gpt_oss"}
PAIRS = [(name, kind) for name in FAMILIES for kind in ("sdpa", "eager") if kind == "eager" or name not in EAGER_ONLY]


@functools.cache
def build(name: str, kind: str, dropout: float = 0.0) -> Any:
    """A model of the family, in evaluation; the same object each time."""
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    model_class, config_class, options, _ = FAMILIES[name]
    rates = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob") if dropout else ()
    config = getattr(transformers, config_class)(**options, **dict.fromkeys(rates, dropout))
    torch.manual_seed(7)
    model = getattr(transformers, model_class)._from_config(config, attn_implementation=kind).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # weights of real size: those of the start make every row uniform
            parameter.mul_(3).add_(0.1 * torch.randn_like(parameter))
    return model


def feed(name: str) -> dict[str, torch.Tensor]:
    noise = torch.Generator().manual_seed(3)
    tokens = torch.randint(5, 90, (2, 7), generator=noise)
    kept = torch.ones(2, 7, dtype=torch.long)
    kept[1, 5:] = 0
    text = {"input_ids": tokens, "attention_mask": kept}
    picture = {"pixel_values": torch.randn(2, 3, 8, 8, generator=noise)}
    if name in ("vit", "clip"):
        return picture if name == "vit" else text | picture
    if name == "whisper":
        sound = torch.randn(2, 8, 20, generator=noise)
        return {"input_features": sound, "decoder_input_ids": tokens[:, :5]}
    return text | {"decoder_input_ids": tokens[:, :5]} if name in ("t5", "bart") else text


def read(name: str, output: Any) -> torch.Tensor:
    logits: torch.Tensor = output.logits_per_image if name == "clip" else output[0]
    return logits


def list_kinds(model: Any) -> list[str]:
    """What every config in a model says, for comparison."""
    return [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]


def list_registered():
    """The names under which attentions and masks are known to transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface

    return set(AttentionInterface._global_mapping), set(AttentionMaskInterface._global_mapping)
