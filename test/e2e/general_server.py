#!/usr/bin/env python3
"""Asks a server of test/e2e/onnx-general.sh's graph with several clients at a time: each gets the tokens that `lathe run` prints.

usage: general_server.py URL "TOKENS"
"""
import concurrent.futures
import json
import sys
import urllib.error
import urllib.request

url, expected = sys.argv[1], [int(t) for t in sys.argv[2].split()]


def post(body):
    request = urllib.request.Request(url + '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


with urllib.request.urlopen(url + '/v1/models', timeout=60) as answer:
    model = json.load(answer)['data'][0]
if model.get('general_graph') != {'sequences': 1, 'cache': 'contiguous', 'exact_tokens': False}:
    sys.exit(f'/v1/models says {model}')

plain = {'prompt': [3, 14, 15, 92], 'max_tokens': len(expected), 'temperature': 0, 'logprobs': 1, 'ignore_eos': True}
other = plain | {'prompt': [3, 14, 15, 92, 65, 35]}
with concurrent.futures.ThreadPoolExecutor(6) as pool:
    answers = list(pool.map(post, [plain, other] * 6))
# Without a tokenizer a token's text is its id.
tokens = [[int(t) for t in a['choices'][0]['logprobs']['tokens']] for a in answers]
if any(t != expected for t in tokens[::2]):
    sys.exit(f'expected {expected}, found {tokens[::2]}')
if any(t != tokens[1] for t in tokens[1::2]):
    sys.exit(f'answers to one prompt differ: {tokens[1::2]}')
for refused, name in ((plain | {'n': 2}, 'n'), (plain | {'speculate': 'ngram'}, 'speculate')):
    try:
        post(refused)
        sys.exit(f'{name} was taken')
    except urllib.error.HTTPError as error:
        message = json.load(error)['error']['message']
        if error.code != 400 or name not in message:
            sys.exit(f'{name}: expected 400, found {error.code}: {message}')
print(f'{len(answers)} requests of 6 clients, one after the other: the tokens of run')
