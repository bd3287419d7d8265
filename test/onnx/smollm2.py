#!/usr/bin/env python3
"""Writes SmolLM2-135M-Instruct as a HuggingFace directory of float32 weights, dequantized from its GGUF.

usage: smollm2.py FILE.gguf OUT
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
quantized = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
config = quantized.config
if hasattr(config, 'quantization_config'):
    del config.quantization_config
model = type(quantized)(config)  # a model that comes from a GGUF refuses to be saved
model.load_state_dict(quantized.state_dict())
model.save_pretrained(out)
AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(out)
path = out / 'config.json'
text = json.loads(path.read_text())
text['architectures'] = [type(model).__name__]
path.write_text(json.dumps(text, indent=1))
