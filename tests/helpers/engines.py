"""`need` skips tests of missing packages; a Llama of 2 layers with random weights as GGUF and for transformers.

The model writes nonsense, but makes JSON likely and ends it, so that constrained decoding gives valid replies soon.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_rageval.prompts import promptset

KEY = "sk-of-a-proxy-in-the-tests"
LLAMA_SERVER = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


def need(*modules: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test by the name of the first package that is not installed."""
    missing = next((module for module in modules if find_spec(module) is None), None)
    return pytest.mark.skipif(missing is not None, reason=f"{missing} is not installed")


VOCABULARY, WIDTH, INNER, HEADS, LAYERS, CONTEXT = 4096, 64, 128, 4, 2, 16384
LIKELY = {'"': 6, ",": 6, "}": 6, "1": 5.5, "]": 5, ":": 5, '"]': 5, '"}': 5, "{": 4, "[": 4, '."': 4}
LIKELY |= {'"}]': 4, '","': 3}
SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def build_tokenizer() -> Any:
    """Return a byte-level BPE tokenizer trained on the package's prompts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    files = sorted(Path(promptset.__file__).parent.glob("*/*.yaml"))
    tokenizer.train_from_iterator([file.read_text("utf-8") for file in files], trainer)
    return tokenizer


def random_weights(vocabulary: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights by the names of transformers. Dimension 0 is constant and makes some tokens likely."""
    numbers, size = np.random.default_rng(seed), len(vocabulary)

    def normal(*shape: int, scale: float = 0.15) -> np.ndarray:
        return numbers.normal(0, scale, shape).astype(np.float32)

    weights = {"model.embed_tokens.weight": normal(size, WIDTH, scale=0.3), "lm_head.weight": normal(size, WIDTH)}
    weights["model.norm.weight"] = np.ones(WIDTH, np.float32)
    for layer in range(LAYERS):
        shapes = {
            "attn": (WIDTH, WIDTH),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }
        for short, name in _NAMES.items():
            shape = shapes.get(short, shapes["attn"])
            weight = np.ones(WIDTH, np.float32) if "norm" in short else normal(*shape)
            if short in ("attn_output", "ffn_down"):
                weight[0] = 0
            weights[f"model.layers.{layer}.{name}.weight"] = weight
    weights["model.embed_tokens.weight"][:, 0] = 8
    weights["lm_head.weight"][:, 0] = 0
    for token, likelihood in {**LIKELY, "<|im_end|>": 4}.items():
        if token in vocabulary:
            weights["lm_head.weight"][vocabulary[token], 0] = likelihood / 8
    return weights


def write_gguf(path: Path, tokenizer: Any, weights: dict[str, np.ndarray]) -> Path:
    """Write the model as a file of llama.cpp."""
    import gguf

    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    tokens = [token for token, _ in vocabulary]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(_merges(tokenizer))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    for layer in range(LAYERS):
        names |= {f"blk.{layer}.{short}": f"model.layers.{layer}.{name}" for short, name in _NAMES.items()}
    for short, name in names.items():
        writer.add_tensor(f"{short}.weight", weights[f"{name}.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_transformers(folder: Path, tokenizer: Any, weights: dict[str, np.ndarray]) -> Path:
    """Write the model as a folder of transformers."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    widths = {"hidden_size": WIDTH, "intermediate_size": INNER, "max_position_embeddings": CONTEXT}
    counts = {"vocab_size": tokenizer.get_vocab_size(), "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    special = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 2}
    model = LlamaForCausalLM(LlamaConfig(**widths, **counts, **special))
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    model.generation_config = GenerationConfig(max_new_tokens=60, do_sample=False, pad_token_id=0, eos_token_id=2)
    model.save_pretrained(folder)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|im_end|>")
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    return folder


def _merges(tokenizer: Any) -> list[str]:
    import json

    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [" ".join(merge) if isinstance(merge, list) else merge for merge in merges]
