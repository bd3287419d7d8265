#!/usr/bin/env python3
# Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
"""Compares Lathe's tokenizers with the `tokenizers` and `sentencepiece` libraries and with llama.cpp's ids.

  pip install tokenizers sentencepiece gguf numpy
  compare.py --tool build/bin/lathe-tokenize [--count N] [--seed S] [--vocab-dir DIR] [--only NAME]

Tokenizers are trained here, on text made here. With --vocab-dir (or LATHE_VOCAB_DIR), the vocabulary files
there (ggml-vocab-*.gguf with .inp and .out beside them, from the llama.cpp source tree) are checked as well:
their expected ids, and `tokenizers` with the same vocabulary on random text. --count texts for each tokenizer.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import numpy as np
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SAMPLES = """The quick brown fox jumps over the lazy dog. It's 3.14159, isn't it? They'll say we've won: I'm sure he'd agree.
def fib(n):\n\treturn n if n < 2 else fib(n - 1) + fib(n - 2)\n\n\nfor (int i = 0; i < 10; ++i) { a[i] += b[i] * 2; } // loop
<html><body class="x">&nbsp;</body></html> {"key": [1, 2, 3], "other": null}\r\n\r\nSELECT * FROM t WHERE id >= 1000000;
\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5. \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663. \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968. \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01
\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \u2764\ufe0f \u00bd \u00b2 \u2167 \ufb01\ufb02 \u01c5 \u0130stanbul stra\u00dfe cafe\u0301 caf\u00e9 nai\u0308ve \u1e9b\u0323
    four spaces\t\ttabs   \n \n  \n\nlines\u00a0nbsp\u3000wide\u2028sep\u0085nel end   """
POOL = ("abcdeABC the and ing 's 'S 'll 'LL 'Re 't 'm 'd 've \u017f 0123456789 !?.,;:-_()[]{}<>/\\|@#$%^&*~`\"' " "\n\r\t \x00\x01\x1f\x7f\x85\xa0\u1680\u2000\u200b\u200d\u2028\u202f\u3000\ufeff\ufffd"
        "\u00e9\u00df\u0130\u0131\u01c5\u0301\u0323\u0308\u20dd\u0663\u0967\u00bd\u00b2\u2167\u2460\u4e2d\u6587\u3042\u30ab\uac00\ud7a3\u1112\u1161\u11ab\u0e2a\u0e31\u0928\u094d\u0645"
        "\u2581\u00b5\u212b\u2126\ufb01\u1e9b\uff21\uff01\U0001f600\U0001f1e9\U0001f3fd\u200d\U00010400\U00020000\u1c89\U00010d50\U0001d400\U000e0041\ue000\u0378")
WORDS = ["the", " the", "  ", "   ", "\n\n", " \n", "\r\n", "'s", "'LL", " don't", "hello", " World", "1234567", " 12", "\u4e2d\u6587", " caf\u00e9", "e\u0301", "==", " !=", "\t\t", "<|end|>", "<s>", "_x", "\u2581", " \u2581a"]


def texts(seed, count):
    rng = random.Random(seed)
    lines = SAMPLES.split("\n")
    out = ["", " ", "\n", "a", "  a", "a  ", SAMPLES] + lines
    if count >= 300:  # words long enough for the other queue of merges
        out += ["".join(rng.choice("etaoin") for _ in range(5000)), "the" * 1500, " " * 3000 + "x", "\n" * 3000]
    while len(out) < count:
        kind = rng.random()
        if kind < 0.25:
            start = rng.randrange(len(SAMPLES))
            out.append(SAMPLES[start:start + rng.randrange(1, 60)])
        elif kind < 0.75:
            parts = []
            for _ in range(rng.randrange(1, 14)):
                parts.append(rng.choice(WORDS) if rng.random() < 0.5 else rng.choice(POOL) * rng.choice((1, 1, 1, 2, 3, 7)))
            out.append("".join(parts))
        elif kind < 0.9:
            out.append("".join(rng.choice(POOL) for _ in range(rng.randrange(1, 20))))
        else:
            cps = []
            for _ in range(rng.randrange(1, 12)):
                cp = rng.choice((rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)))
                if not 0xD800 <= cp < 0xE000:
                    cps.append(chr(cp))
            out.append("".join(cps))
    return out[:count]


class Checker:
    def __init__(self, tool, count, seed, only):
        self.tool, self.count, self.seed, self.only = tool, count, seed, only
        self.failed = 0

    def wanted(self, name):
        return not self.only or self.only in name

    def run(self, model, lines, *flags):
        data = "".join(t.hex() + "\n" for t in lines).encode()
        result = subprocess.run([self.tool, model, "--hex", *flags], input=data, capture_output=True)
        if result.returncode != 0:
            return None, result.stderr.decode()
        return result.stdout.decode().split("\n")[:-1], None

    def report(self, name, lines, got, want, error=None):
        if error is not None:
            print(f"FAIL {name}: {error.strip()}")
            self.failed += 1
            return
        bad = [i for i in range(len(lines)) if got[i] != want[i]]
        print(f"{'FAIL' if bad else 'ok  '} {name}: {len(lines) - len(bad)} of {len(lines)}")
        for i in bad[:int(os.environ.get("SHOW", "2"))]:
            print("     text", ascii(lines[i])[:300], "\n     got ", got[i], "\n     want", want[i])
        self.failed += bool(bad)

    def against_tokenizers(self, name, tokenizer, model_path, special=True, decode=True, config=None):
        """model_path: None makes a directory with tokenizer.json."""
        lines = texts(self.seed + hash_of(name), self.count)
        if any(x in tokenizer.to_str() for x in ("StripAccents", "BertNormalizer", '"NFKC"', '"NFKD"')):
            # The library's normalizers have the data of Unicode 10: leave out what is newer.
            lines = [t for t in lines if all(unicodedata.ucd_3_2_0.category(c) != "Cn" for c in t)]
        encoded = [t.encode() for t in lines]
        want = [e.ids for e in tokenizer.encode_batch(lines, add_special_tokens=False)]
        with tempfile.TemporaryDirectory() as folder:
            if model_path is None:
                model_path = folder
                tokenizer.save(os.path.join(folder, "tokenizer.json"))
            flags = ["--parse-special"] if special else []
            got, error = self.run(model_path, encoded, *flags)
            got = got and [[int(x) for x in line.split()] for line in got]
            self.report(name, lines, got, want, error)
            if decode and got:
                back, error = self.run(model_path, encoded, "--decode", *flags)
                strings = [bytes.fromhex(x).decode(errors="replace") for x in back]
                self.report(name + " decode", lines, strings, tokenizer.decode_batch(want, skip_special_tokens=True))


def hash_of(name):
    return sum(ord(c) * (i + 1) for i, c in enumerate(name)) % 100000


# --- trained here ---

def train(tokenizer, trainer):
    tokenizer.train_from_iterator([SAMPLES] * 3 + texts(99, 600), trainer)
    return tokenizer


def byte_level(split=None, size=600, normalizer=None, prefix=False, special=("<|end|>", "<s>")):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    steps = [split] if split is not None else []
    t.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split is None)])
    t.decoder = decoders.ByteLevel()
    return train(t, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
AYA = r"\d{1,3}(?=(?:\d{3})*\b)"
DEEPSEEK3 = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def isolated(*patterns):
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


def trained_cases():
    """Name to (function that makes a tokenizer, compare decoding as well)."""
    P = pre_tokenizers
    cases = {
        "gpt2": lambda: byte_level(),
        "prefix space": lambda: byte_level(prefix=True),
        "llama3": lambda: byte_level(isolated(LLAMA3)),
        "qwen2 nfc": lambda: byte_level(isolated(QWEN2), normalizer=normalizers.NFC()),
        "qwen35": lambda: byte_level(isolated(QWEN35)),
        "gpt4o": lambda: byte_level(isolated(GPT4O)),
        "cl100k": lambda: byte_level(isolated(CL100K)),
        "aya": lambda: byte_level(isolated(AYA, GPT4O)),
        "deepseek3": lambda: byte_level(isolated(r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3)),
        "digits": lambda: byte_level(P.Digits(individual_digits=True)),
        "digit runs": lambda: byte_level(P.Digits(individual_digits=False)),
        "punctuation": lambda: byte_level(P.Punctuation("contiguous")),
        "whitespace": lambda: byte_level(P.WhitespaceSplit()),
        "bert split": lambda: byte_level(P.BertPreTokenizer()),
        "delimiter": lambda: byte_level(P.CharDelimiterSplit("e")),
        "nfkc lower": lambda: byte_level(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])),
        "strip replace": lambda: byte_level(normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.Replace("the", "THE"), normalizers.Replace(Regex(r"\s+"), " ")])),
        "bert normalizer": lambda: byte_level(normalizer=normalizers.BertNormalizer()),
    }
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            cases[f"split {behavior} {invert}"] = lambda b=behavior, i=invert: byte_level(P.Split(Regex(r"[\s\p{P}]"), b, i))
    cases = {name: (make, name in ("gpt2", "llama3", "qwen35")) for name, make in cases.items()}

    def llama_style(unk=True, fallback=True):
        t = Tokenizer(models.BPE(byte_fallback=fallback, unk_token="<unk>" if unk else None, fuse_unk=True))
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        bytes_ = ["<0x%02X>" % b for b in range(256)] if fallback else []
        t = train(t, trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, show_progress=False, limit_alphabet=150))
        spec = json.loads(t.to_str())
        spec["added_tokens"] = spec["added_tokens"][:3]  # the byte pieces belong to the model only
        return Tokenizer.from_str(json.dumps(spec))

    def metaspace(model, scheme, split=True, **trainer):
        t = Tokenizer(model)
        t.pre_tokenizer = P.Metaspace(prepend_scheme=scheme, split=split)
        t.decoder = decoders.Metaspace(prepend_scheme=scheme)
        kind = trainers.UnigramTrainer if isinstance(model, models.Unigram) else trainers.BpeTrainer
        args = dict(vocab_size=1500, special_tokens=["<unk>", "<s>"], show_progress=False)
        if kind is trainers.UnigramTrainer:
            args["unk_token"] = "<unk>"
        return train(t, kind(**args))

    def added():
        t = byte_level(isolated(QWEN2))
        t.add_tokens([AddedToken("hello", normalized=False), AddedToken("World", single_word=True, normalized=False),
                      AddedToken("<m>", lstrip=True, rstrip=True, normalized=False), "the"])
        t.add_special_tokens([AddedToken("<|end|>", normalized=False), AddedToken("==", rstrip=True, normalized=False)])
        return t

    def word_piece():
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer()
        t.pre_tokenizer = P.BertPreTokenizer()
        return train(t, trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[UNK]", "[CLS]"], show_progress=False, limit_alphabet=150))

    def end_of_word():
        t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
        t.pre_tokenizer = P.Whitespace()
        return train(t, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False, end_of_word_suffix="</w>", limit_alphabet=100))

    cases.update({
        "llama bpe": (llama_style, True), "llama bpe unk": (lambda: llama_style(fallback=False), False),
        "llama bpe drop": (lambda: llama_style(unk=False, fallback=False), False),
        "metaspace bpe always": (lambda: metaspace(models.BPE(unk_token="<unk>"), "always"), False),
        "unigram always": (lambda: metaspace(models.Unigram(), "always"), True),
        "unigram first": (lambda: metaspace(models.Unigram(), "first"), True),
        "unigram never whole": (lambda: metaspace(models.Unigram(), "never", False), True),
        "added tokens": (added, False), "word piece": (word_piece, False),
        "end of word": (end_of_word, False),
    })
    return cases


def trained(check):
    for name, (make, decode) in trained_cases().items():
        if check.wanted(name):
            check.against_tokenizers(name, make(), None, decode=decode)


# --- sentencepiece ---

def spm_to_gguf(model_file, path):
    sp = sentencepiece.SentencePieceProcessor(model_file=model_file)
    from sentencepiece import sentencepiece_model_pb2 as pb
    proto = pb.ModelProto()
    proto.ParseFromString(open(model_file, "rb").read())
    unigram = proto.trainer_spec.model_type == 1
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("t5" if unigram else "llama")
    writer.add_token_list([p.piece.encode() for p in proto.pieces])
    writer.add_token_scores([p.score for p in proto.pieces])
    writer.add_token_types([int(p.type) for p in proto.pieces])
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    writer.add_unk_token_id(sp.unk_id())
    if unigram and proto.normalizer_spec.precompiled_charsmap:
        writer.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return sp


IDENTITY = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
SENTENCE_PIECE = {
    "spm bpe": dict(model_type="bpe", byte_fallback=True, **IDENTITY),
    "spm bpe no prefix": dict(model_type="bpe", byte_fallback=True, add_dummy_prefix=False, **IDENTITY),
    "spm bpe digits": dict(model_type="bpe", byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, **IDENTITY),
    "spm unigram": dict(model_type="unigram", **IDENTITY),
    "spm unigram nfkc": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", remove_extra_whitespaces=True),
}


def train_sentence_piece(options, path):
    """Writes |path|, a GGUF file; returns the library's processor."""
    base = dict(vocab_size=600, character_coverage=0.98, minloglevel=2, bos_id=1, eos_id=2, unk_id=0, pad_id=-1)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w") as f:
            for t in [SAMPLES] * 20 + texts(5, 2000):
                f.write(t.replace("\x00", "").replace("\n", " ") + "\n")
        prefix = os.path.join(folder, "m")
        sentencepiece.SentencePieceTrainer.train(input=os.path.join(folder, "text"), model_prefix=prefix, **{**base, **options})
        return spm_to_gguf(prefix + ".model", path)


def sentence_piece(check):
    for name, options in SENTENCE_PIECE.items():
        if not check.wanted(name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            sp = train_sentence_piece(options, path)
            lines = [t for t in texts(check.seed + hash_of(name), check.count) if "\x00" not in t]
            got, error = check.run(path, [t.encode() for t in lines])
            got = got and [[int(x) for x in line.split()] for line in got]
            check.report(name, lines, got, [sp.encode(t) for t in lines], error)


# --- vocabularies of real models ---

def real(check, folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.gguf"))):
        name = os.path.basename(path)[:-5]
        if not check.wanted(name):
            continue
        if os.path.exists(path + ".inp"):
            lines = open(path + ".inp", "rb").read().split(b"\n__ggml_vocab_test__\n")
            want = [line.split() for line in open(path + ".out").read().split("\n")]
            got, error = check.run(path, lines)
            check.report(name + " expected ids", lines, got and [g.split() for g in got], want[:len(lines)], error)
        if processor := sentence_piece_from_gguf(path):
            # U+2581 in a text is the library's own mark for a space; llama.cpp agrees, for pieces have it.
            lines = [t for t in texts(check.seed + hash_of(name), check.count) if "\x00" not in t]
            got, error = check.run(path, [t.encode() for t in lines])
            check.report(name + " sentencepiece", lines, got and [[int(x) for x in g.split()] for g in got],
                         [processor.encode(t) for t in lines], error)
        tokenizer = from_gguf(path)
        if tokenizer is not None:
            # The library reads added tokens of one letter as bytes when it decodes ("\u00fc" becomes 0xFC).
            decode = "deepseek-coder" not in name
            check.against_tokenizers(name + " gguf", tokenizer, path, decode=decode)
            check.against_tokenizers(name + " json", tokenizer, None, decode=decode)


PRE = {
    "gpt-2": [], "mpt": [], "llama-bpe": [LLAMA3], "qwen2": [QWEN2], "qwen35": [QWEN35],
    "smollm": ["\\p{N}"], "starcoder": ["\\p{N}"], "refact": ["\\p{N}"], "command-r": ["\\p{N}"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
}
GPT2_AFTER = {"gpt-2", "mpt", "smollm", "starcoder", "refact", "command-r"}


def sentence_piece_from_gguf(path):
    from sentencepiece import sentencepiece_model_pb2 as pb
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields[key].contents() if key in fields else None
    if get("tokenizer.ggml.model") not in ("llama", "t5"):
        return None
    unigram = get("tokenizer.ggml.model") == "t5"
    proto = pb.ModelProto()
    for piece, score, kind in zip(get("tokenizer.ggml.tokens"), get("tokenizer.ggml.scores"), get("tokenizer.ggml.token_type")):
        if kind == 2 and len(proto.pieces) != get("tokenizer.ggml.unknown_token_id"):
            kind = 3  # a file may have several unknown tokens, the library has one
        # Converters write the spaces of user-defined pieces as such.
        proto.pieces.add(piece=piece.replace(" ", "\u2581") if kind == 4 else piece, score=score, type=kind)
    proto.trainer_spec.model_type = 1 if unigram else 2
    proto.trainer_spec.byte_fallback = not unigram
    prefix = get("tokenizer.ggml.add_space_prefix")
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = prefix is None or bool(prefix)
    proto.normalizer_spec.remove_extra_whitespaces = bool(get("tokenizer.ggml.remove_extra_whitespaces"))
    if unigram:
        proto.normalizer_spec.precompiled_charsmap = bytes(get("tokenizer.ggml.precompiled_charsmap"))
    proto.normalizer_spec.escape_whitespaces = True
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def from_gguf(path):
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields[key].contents() if key in fields else None
    pre, kind = get("tokenizer.ggml.pre"), get("tokenizer.ggml.model")
    if kind != "gemma4" and (kind != "gpt2" or pre not in PRE):
        return None
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ", 1)) if m[0] != " " else (" ", m[2:]) for m in get("tokenizer.ggml.merges")]
    vocab = {t: i for i, t in enumerate(tokens)}
    if kind == "gemma4":
        t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.normalizer = normalizers.Replace(" ", "\u2581")
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
        steps = [isolated(p) for p in PRE[pre]]
        t.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre in GPT2_AFTER)])
        t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(tok, normalized=False, special=True) for tok, ty in zip(tokens, types) if ty in (2, 3)])
    t.add_tokens([AddedToken(tok, normalized=False) for tok, ty in zip(tokens, types) if ty == 4])
    return t


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab-dir", default=os.environ.get("LATHE_VOCAB_DIR"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    check = Checker(os.path.abspath(args.tool), args.count, args.seed, args.only)
    trained(check)
    sentence_piece(check)
    if args.vocab_dir:
        for folder in args.vocab_dir.split(":"):
            real(check, folder)
    print(f"{check.failed} failed" if check.failed else "all passed")
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()
