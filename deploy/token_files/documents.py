"""Documents out of text files, read piece by piece."""
import json
import os

EXIT_ERROR, EXIT_USAGE, EXIT_DATA = 1, 2, 5
# A document is encoded in pieces of about this size, cut where a line begins.
PIECE_CHARACTERS = 1 << 18
LINE_BYTES_MAX = 1 << 21
SPLIT = object()  # between the pieces of a file: what follows is for validation


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Source:
    """Documents of the input files, each an iterable of pieces; counts the bytes it has read."""

    def __init__(self, options):
        self.paths, self.separator = options.inputs, options.document_separator
        self.field = options.field
        self.split_part = options.validation if self.separator == "file" else 0
        self.read_bytes = 0
        try:
            self.total_bytes = sum(os.path.getsize(path) for path in self.paths)
        except OSError as error:
            raise Failure(EXIT_DATA, f"cannot read {error.filename}: {error.strerror}") from None

    def _lines(self, path):
        number = 0
        try:
            with open(path, "rb") as file:
                # A line may be huge (a whole book): readline's limit bounds it.
                while line := file.readline(LINE_BYTES_MAX):
                    number += 1
                    self.read_bytes += len(line)
                    yield number, line
        except OSError as error:
            raise Failure(EXIT_DATA, f"cannot read {path}: {error.strerror}") from None

    @staticmethod
    def _text(line, path, number, carried=b""):
        """Decoded line and the bytes of a character that its end cuts."""
        data = carried + line
        try:
            return data.decode(), b""
        except UnicodeDecodeError as error:
            if len(data) - error.start < 4 and error.reason == "unexpected end of data":
                return data[:error.start].decode(), data[error.start:]
            raise Failure(EXIT_DATA, f"{path}: line {number} isn't UTF-8 text") from None

    def _file(self, path):
        """Pieces of one file; None where a blank line ends a document, SPLIT once."""
        piece, length, carried = [], 0, b""
        split_bytes = self.read_bytes + (1 - self.split_part) * os.path.getsize(path)
        splits = self.split_part > 0
        for number, line in self._lines(path):
            if self.separator == "blank-line" and not carried and not line.strip():
                if piece:
                    yield "".join(piece)
                yield None
                piece, length = [], 0
                continue
            text, carried = self._text(line, path, number, carried)
            piece.append(text)
            length += len(text)
            at_split = splits and self.read_bytes >= split_bytes
            if length >= PIECE_CHARACTERS or at_split:
                yield "".join(piece)
                piece, length = [], 0
            if at_split:
                splits = False
                yield SPLIT
        if carried:
            raise Failure(EXIT_DATA, f"{path}: the last character isn't UTF-8 text")
        if piece:
            yield "".join(piece)

    def _jsonl(self, path):
        whole = b""
        for number, line in self._lines(path):
            whole += line
            if line.endswith(b"\n"):
                yield from self._object(whole, path, number)
                whole = b""
        yield from self._object(whole, path, "last")

    def _object(self, line, path, number):
        if not line.strip():
            return
        try:
            text = json.loads(line)[self.field]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise Failure(EXIT_DATA, f"{path}: line {number} is no JSON object with a text in "
                          f"\"{self.field}\"")
        yield text
        yield None

    def pieces(self):
        """Pieces of text; None ends a document that had some."""
        for path in self.paths:
            open_document = False
            reader = self._jsonl if self.separator == "jsonl" else self._file
            for piece in reader(path):
                if isinstance(piece, str) and piece:
                    open_document = True
                    yield piece
                elif piece is SPLIT:
                    yield piece
                elif piece is None and open_document:
                    open_document = False
                    yield None
            if open_document:
                yield None
