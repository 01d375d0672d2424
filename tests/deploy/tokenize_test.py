"""deploy/tokenize.py: documents, files, messages; with the tokenizers package also real tokens."""
import array
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

DEPLOY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy")
SCRIPT = os.path.join(DEPLOY, "tokenize.py")
HAS_TOKENIZERS = importlib.util.find_spec("tokenizers") is not None
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(DEPLOY, "token_files"))

import documents  # noqa: E402
import vocabulary  # noqa: E402
import writing  # noqa: E402


class Options:
    def __init__(self, inputs, **others):
        self.inputs, self.document_separator, self.field = inputs, "file", "text"
        self.validation, self.seed, self.output = 0.0, 0, None
        self.__dict__.update(others)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def file(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return self.path(name)

    def documents_of(self, *inputs, **others):
        """Text of each document; pieces are joined, "|" is where validation begins."""
        result, text = [], ""
        for piece in documents.Source(Options(list(inputs), **others)).pieces():
            if piece is None:
                result.append(text)
                text = ""
            else:
                text += "|" if piece is documents.SPLIT else piece
        self.assertEqual(text, "")
        return result


class DocumentsTest(Folder):
    def test_a_file_is_a_document(self):
        one, two = self.file("1", "a\n\nb"), self.file("2", "c\n")
        self.assertEqual(self.documents_of(one, two, self.file("3", "")), ["a\n\nb", "c\n"])

    def test_blank_lines_separate_documents(self):
        path = self.file("1", "\n\na\nb\n \n\nc")
        self.assertEqual(self.documents_of(path, document_separator="blank-line"), ["a\nb\n", "c"])

    def test_lines_of_json_are_documents(self):
        one = self.file("1", '{"text": "a\\nb"}\n\n{"text": ""}')
        two = self.file("2", '{"text": "c"}\n')
        self.assertEqual(self.documents_of(one, two, document_separator="jsonl"), ["a\nb", "c"])
        bad = self.file("3", '{"text": "a"}\n{"body": "b"}\n')
        with self.assertRaisesRegex(documents.Failure, "3: line 2 is no JSON object"):
            self.documents_of(bad, document_separator="jsonl")

    def test_characters_are_never_cut(self):
        text = "Größe \u20ac" * 400_000
        self.assertEqual(self.documents_of(self.file("1", text)), [text])

    def test_what_is_no_text_is_named_with_its_line(self):
        with self.assertRaisesRegex(documents.Failure, "line 2 isn't UTF-8 text"):
            self.documents_of(self.file("1", b"ok\n\xff\xfe\n"))

    def test_the_last_part_of_each_file_is_for_validation(self):
        lines = [f"line {i}\n" for i in range(10)]
        path = self.file("1", "".join(lines))
        self.assertEqual(self.documents_of(path, validation=0.2),
                         ["".join(lines[:8]) + "|" + "".join(lines[8:])])


class WritingTest(Folder):
    def test_files_get_their_names_when_they_are_complete(self):
        writer = writing.TokenWriter(self.path("t"), 4)
        writer.write([1, 70000])
        self.assertEqual(os.listdir(self.folder.name), ["t.part"])
        writer.finish({"document_end": 0})
        with open(self.path("t"), "rb") as file:
            self.assertEqual(array.array("I", file.read()).tolist(), [1, 70000])
        with open(self.path("t.json")) as file:
            self.assertEqual(json.load(file), {"dtype": "uint32", "tokens": 2, "documents": 0,
                                               "document_end": 0})
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["t", "t.json"])

    def test_a_share_of_the_documents_is_for_validation(self):
        options = Options([], document_separator="blank-line", validation=0.25,
                          output=self.path("t.tokens"))
        splitter = writing.Splitter(options, 2, 9)
        for number in range(1000):
            splitter.write([number])
            splitter.end_document()
        training, validation = splitter.writers
        self.assertEqual(training.documents + validation.documents, 1000)
        self.assertTrue(200 < validation.documents < 300, validation.documents)
        self.assertEqual(training.tokens, 2 * training.documents)
        for writer in splitter.writers:
            writer.discard()
        self.assertEqual(os.listdir(self.folder.name), [])


class VocabularyTest(unittest.TestCase):
    def test_byte_level_tokens_are_bytes_again(self):
        tokens = vocabulary.token_bytes({
            "model": {"vocab": {"<end>": 0, "\u0120a": 1, "\u010a": 2, "\u00e2\u0124": 4}},
            "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": 0, "content": "<end>", "special": True},
                             {"id": 5, "content": "  ", "special": False}]})
        self.assertEqual(tokens, [b"", b" a", b"\n", b"", b"\xe2\x82", b"  "])

    def test_other_tokenizers_mark_blanks_and_bytes_otherwise(self):
        tokens = vocabulary.token_bytes({"model": {"vocab": [["\u2581a", 0], ["<0x0A>", 0]]}})
        self.assertEqual(tokens, [b" a", b"\n"])


class ProgramTest(Folder):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True,
                              env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})

    def test_wrong_arguments_are_usage_errors(self):
        self.assertEqual(self.run_script("--tokenizer", "t").returncode, 2)
        self.assertEqual(self.run_script("--tokenizer", "t", "--output", "o", "--validation", "1",
                                         "x").returncode, 2)

    @unittest.skipIf(HAS_TOKENIZERS, "the package is there")
    def test_says_what_to_install(self):
        result = self.run_script("--tokenizer", "t", "--encode", "x")
        self.assertEqual(result.returncode, 1)
        self.assertIn("pip install tokenizers", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)

    @unittest.skipUnless(HAS_TOKENIZERS, "needs the package tokenizers")
    def test_tokens_decode_to_the_text(self):
        text = "Größe, and \u20ac.\n" * 200
        tokenizer = self.file("tokenizer.json", json.dumps({
            "version": "1.0", "added_tokens": [
                {"id": 256, "content": "<|endoftext|>", "special": True, "single_word": False,
                 "lstrip": False, "rstrip": False, "normalized": False}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                        "use_regex": True},
            "model": {"type": "BPE", "merges": [], "vocab": {
                character: byte for character, byte in vocabulary.byte_of_character().items()}}}))
        result = self.run_script("--tokenizer", tokenizer, "--output", self.path("d.tokens"),
                                 "--validation", "0.1", self.file("text", text))
        self.assertEqual(result.returncode, 0, result.stderr)
        decoded = b""
        with open(self.path("d.tokens.vocab")) as file:
            tokens = [bytes.fromhex(line.strip()) for line in file]
        for name in ("d.tokens", "d.validation.tokens"):
            with open(self.path(name), "rb") as file:
                ids = array.array("H", file.read())
            self.assertEqual(ids[-1], 256)
            decoded += b"".join(tokens[index] for index in ids)
        self.assertEqual(decoded.decode(), text)
        encoded = self.run_script("--tokenizer", tokenizer, "--encode", "An")
        self.assertEqual(encoded.stdout, "65,110\n")
        refused = self.run_script("--tokenizer", tokenizer, "--output", self.path("e"),
                                  self.file("bad", b"\xff\n"))
        self.assertEqual(refused.returncode, 5)
        self.assertFalse(os.path.exists(self.path("e.part")))


if __name__ == "__main__":
    unittest.main()
