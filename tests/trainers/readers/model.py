"""Write the folder of a model without weights: a tokenizer of bytes with TRL's chat template of Qwen 3."""

from __future__ import annotations

import sys
from importlib.resources import files

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
of_bytes = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
of_bytes.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_bytes, pad_token="<pad>", eos_token="<|im_end|>")
tokenizer.chat_template = files("trl").joinpath("chat_templates/qwen3_training.jinja").read_text()
tokenizer.save_pretrained(sys.argv[1])
size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 16}
heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "architectures": ["Qwen3ForCausalLM"]}
Qwen3Config(vocab_size=len(tokenizer), **size, **heads).save_pretrained(sys.argv[1])
