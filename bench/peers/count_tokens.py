"""Exact counts of tokens by tiktoken, one thread.

    count_tokens.py VOCABULARY.tiktoken TEXTS.json CALLS

Reads a vocabulary that is checked against the hash which tiktoken publishes, and a JSON array of texts. Prints the
version, the tokens of all texts, and the seconds that the quickest of some counts took.
"""

import json
import os
import sys
import time

# Nothing is fetched, so nothing is cached.
os.environ["TIKTOKEN_CACHE_DIR"] = ""

import tiktoken
from tiktoken_ext import openai_public

load = openai_public.load_tiktoken_bpe


def main(vocabulary, path, calls):
    openai_public.load_tiktoken_bpe = lambda _, expected_hash=None: load(vocabulary, expected_hash=expected_hash)
    encoding = tiktoken.Encoding(**openai_public.o200k_base())
    with open(path, encoding="utf-8") as file:
        texts = json.load(file)
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        tokens = sum(len(encoding.encode_ordinary(text)) for text in texts)
        taken.append(time.perf_counter() - begun)
    print(tiktoken.__version__, tokens, min(taken))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
