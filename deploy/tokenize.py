#!/usr/bin/python3
"""Turns text into the token files that zerod-train reads, with any Hugging Face tokenizer.json.

    deploy/tokenize.py --tokenizer MODEL/tokenizer.json --output data.tokens book1.txt book2.txt

writes
    data.tokens             flat little-endian tokens, uint16 if the vocabulary fits, else uint32
    data.tokens.json        what they are: dtype, tokens, documents, document_end, ...
    data.tokens.vocab       bytes of each token in hexadecimal, a line per id, to decode samples
and with --validation 0.05 the last twentieth of each file (with --document-separator blank-line or
jsonl, every twentieth document or so) as data.validation.tokens.
Every document ends with the end token. Text is read piece by piece: memory doesn't grow with it.

    deploy/tokenize.py --tokenizer MODEL/tokenizer.json --encode "Once upon"     prints ids

Exit codes: 0 ok, 1 error, 2 usage, 5 bad tokenizer or text, 128+n for signal n.
"""
import os
import sys

# Not this folder: its tokenize.py would stand in for the standard module of that name.
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "token_files")

import argparse  # noqa: E402
import json  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402

from documents import EXIT_DATA, EXIT_ERROR, EXIT_USAGE, SPLIT, Failure, Source  # noqa: E402
from vocabulary import token_bytes  # noqa: E402
from writing import Splitter, write_text  # noqa: E402

# So much is encoded at a time, in parallel.
BATCH_CHARACTERS = 1 << 21
END_TOKENS = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[SEP]")
BAR_COLUMNS = 30


def load_tokenizer(path):
    try:
        import tokenizers
    except ImportError:
        raise Failure(EXIT_ERROR, "needs the Python package tokenizers; install it with: "
                      f"{sys.executable} -m pip install tokenizers (in a virtual environment, or "
                      "with --break-system-packages)") from None
    if os.path.isdir(path):
        path = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(path):
        raise Failure(EXIT_DATA, f"there is no tokenizer file {path}")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the package raises bare Exception
        raise Failure(EXIT_DATA, f"{path} is no tokenizer that can be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, path


def end_token_of(tokenizer, given):
    """The id behind each document; None only if --end-token none says so."""
    if given == "none":
        return None
    for name in [given] if given else END_TOKENS:
        token = tokenizer.token_to_id(name)
        if token is not None:
            return token
    if given and given.isdecimal() and tokenizer.id_to_token(int(given)) is not None:
        return int(given)
    raise Failure(EXIT_USAGE, f"the tokenizer has no token {given!r}" if given else
                  "the tokenizer has none of the usual end tokens; name it with --end-token, or "
                  "give --end-token none")


class Progress:
    """A bar on a terminal, nothing otherwise."""

    def __init__(self, source):
        self._source, self._shown_s, self._begin_s = source, 0.0, time.monotonic()
        self._terminal = sys.stderr.isatty()

    def show(self, tokens, last=False):
        now_s = time.monotonic()
        if not self._terminal or (not last and now_s - self._shown_s < 0.1):
            return
        self._shown_s = now_s
        part = self._source.read_bytes / max(self._source.total_bytes, 1)
        filled = int(part * BAR_COLUMNS)
        rate = tokens / max(now_s - self._begin_s, 1e-3)
        bar = "#" * filled + "." * (BAR_COLUMNS - filled)
        sys.stderr.write(f"\r\x1b[K{100 * part:3.0f}% [{bar}] "
                         f"{tokens / 1e6:.2f}M tokens  {rate / 1e3:.0f}k tokens/s"
                         + ("\n" if last else ""))
        sys.stderr.flush()


def encode_all(tokenizer, source, splitter):
    progress = Progress(source)
    batch, characters = [], 0

    def flush():
        texts = [piece for piece in batch if isinstance(piece, str)]
        encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
        for piece in batch:
            if piece is None:
                splitter.end_document()
            elif piece is SPLIT:
                splitter.split()
            else:
                splitter.write(next(encoded).ids)
        batch.clear()
        progress.show(sum(writer.tokens for writer in splitter.writers))

    for piece in source.pieces():
        batch.append(piece)
        characters += len(piece) if isinstance(piece, str) else 0
        if characters >= BATCH_CHARACTERS:
            flush()
            characters = 0
    flush()
    progress.show(sum(writer.tokens for writer in splitter.writers), last=True)


def convert(options):
    tokenizer, path = load_tokenizer(options.tokenizer)
    with open(path, encoding="utf-8") as file:
        vocabulary = token_bytes(json.load(file))
    size = max(tokenizer.get_vocab_size(with_added_tokens=True), len(vocabulary))
    end = end_token_of(tokenizer, options.end_token)
    source = Source(options)
    splitter = Splitter(options, 2 if size <= 65536 else 4, end)
    try:
        encode_all(tokenizer, source, splitter)
        for writer in splitter.writers:
            if writer.tokens == 0:
                raise Failure(EXIT_DATA, f"no document came into {writer.path}; give more text, or "
                              "another --validation or --seed")
        name = os.path.basename(options.output) + ".vocab"
        write_text(options.output + ".vocab", "".join(token.hex() + "\n" for token in vocabulary))
        for writer in splitter.writers:
            writer.finish({"vocab_size": size, "document_end": end, "vocabulary": name,
                           "tokenizer": os.path.abspath(path)})
            print(f"{writer.path}: {writer.tokens} tokens in {writer.documents} documents")
    except BaseException:
        for writer in splitter.writers:
            writer.discard()
        raise


def read_options(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, metavar="FILE",
                        help="tokenizer.json, or a folder that has one")
    parser.add_argument("--encode", metavar="TEXT", help="print the ids of TEXT and end")
    parser.add_argument("--output", metavar="FILE", help="where the tokens go")
    parser.add_argument("--document-separator", default="file",
                        choices=("file", "blank-line", "jsonl"),
                        help="a document is a file (default), a paragraph, or a line's JSON object")
    parser.add_argument("--field", default="text", help="of the JSON object that has the text")
    parser.add_argument("--end-token", metavar="TOKEN",
                        help="name or id of the token behind each document; none: without "
                        "(default: the tokenizer's usual one)")
    parser.add_argument("--validation", type=float, default=0.0, metavar="PART",
                        help="part of the documents that goes to a validation file (0)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of those (0)")
    parser.add_argument("inputs", nargs="*", metavar="TEXT_FILE", help="UTF-8 text")
    options = parser.parse_args(arguments)
    if options.encode is None and not (options.output and options.inputs):
        parser.error("give --output FILE and text files, or --encode TEXT")
    if not 0 <= options.validation < 1:
        parser.error(f"--validation is {options.validation}; it must be from 0 to below 1")
    if options.output and os.path.dirname(options.output) and \
            not os.path.isdir(os.path.dirname(options.output)):
        parser.error(f"there is no folder {os.path.dirname(options.output)} for --output")
    return options


def stop(number, _frame):
    raise SystemExit(128 + number)


def main(arguments):
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    options = read_options(arguments)
    try:
        if options.encode is not None:
            tokenizer, _ = load_tokenizer(options.tokenizer)
            ids = tokenizer.encode(options.encode, add_special_tokens=False).ids
            print(",".join(map(str, ids)))
        else:
            convert(options)
    except Failure as failure:
        print(f"tokenize: {failure}", file=sys.stderr)
        return failure.code
    except OSError as error:
        print(f"tokenize: {error.filename or options.output}: {error.strerror}", file=sys.stderr)
        return EXIT_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
