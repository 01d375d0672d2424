"""Token files in the making."""
import array
import hashlib
import json
import os
import sys


class TokenWriter:
    """A token file in the making; it gets its name in finish()."""

    def __init__(self, path, width):
        self.path, self.width = path, width
        self.tokens = self.documents = 0
        self._file = open(path + ".part", "wb")

    def write(self, ids):
        data = array.array("H" if self.width == 2 else "I", ids)
        if sys.byteorder == "big":
            data.byteswap()
        self._file.write(data.tobytes())
        self.tokens += len(ids)

    def finish(self, description):
        self._close()
        description = {"dtype": f"uint{8 * self.width}", "tokens": self.tokens,
                       "documents": self.documents} | description
        write_text(self.path + ".json", json.dumps(description, indent=1) + "\n")
        os.replace(self.path + ".part", self.path)

    def _close(self):
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self):
        self._file.close()
        if os.path.exists(self.path + ".part"):
            os.unlink(self.path + ".part")


def write_text(path, text):
    with open(path + ".part", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def validation_path(path):
    stem, extension = os.path.splitext(path)
    return f"{stem}.validation{extension}"


class Splitter:
    """Sends documents to training or validation: by a hash of their number, or where it is told."""

    def __init__(self, options, width, end):
        self._part, self._seed, self._end = options.validation, options.seed, end
        if options.document_separator == "file":
            self._part = 0  # split() says it
        self.writers = [TokenWriter(options.output, width)]
        if options.validation > 0:
            self.writers.append(TokenWriter(validation_path(options.output), width))
        self._number = 0
        self._writer = self._choose()

    def _choose(self):
        digest = hashlib.sha256(f"{self._seed}:{self._number}".encode()).digest()
        chosen = int.from_bytes(digest[:8], "big") / 2**64 < self._part
        return self.writers[-1] if chosen else self.writers[0]

    def write(self, ids):
        self._writer.write(ids)

    def split(self):
        """The rest of the document is a document of its own, for validation."""
        self.end_document()
        self._writer = self.writers[-1]

    def end_document(self):
        if self._end is not None:
            self._writer.write([self._end])
        self._writer.documents += 1
        self._number += 1
        self._writer = self._choose()
