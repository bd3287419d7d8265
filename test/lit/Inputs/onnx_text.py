#!/usr/bin/env python3
"""Puts texts beside an ONNX model: a tokenizer of 62 characters and two special tokens with a template, and settings as ONNX Runtime GenAI keeps them.

usage: onnx_text.py DIRECTORY END [TEMPLATE]     (END: the number of the end token in genai_config.json)
"""
import json
import pathlib
import sys

folder, end = pathlib.Path(sys.argv[1]), int(sys.argv[2])
vocabulary = {chr(33 + i): i for i in range(62)} | {'<s>': 62, '</s>': 63}
tokenizer = {
    'version': '1.0',
    'added_tokens': [{'id': i, 'content': text, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False, 'special': True} for text, i in (('<s>', 62), ('</s>', 63))],
    'normalizer': None,
    'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True},
    'post_processor': None,
    'decoder': {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': True, 'use_regex': True},
    'model': {'type': 'BPE', 'vocab': vocabulary, 'merges': []},
}
config = {'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': '<s>', 'eos_token': '</s>',
          'chat_template': sys.argv[3] if len(sys.argv) > 3 else '{% for m in messages %}{{ m.content }}{% endfor %}'}
genai = {'model': {'type': 'llama', 'bos_token_id': 62, 'eos_token_id': [63, end], 'context_length': 128},
         'search': {'do_sample': True, 'temperature': 0.5, 'top_k': 7, 'top_p': 0.875, 'repetition_penalty': 1.25, 'past_present_share_buffer': True}}
folder.mkdir(parents=True, exist_ok=True)
for name, value in (('tokenizer.json', tokenizer), ('tokenizer_config.json', config), ('genai_config.json', genai)):
    (folder / name).write_text(json.dumps(value))
