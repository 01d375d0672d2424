"""Which bytes a tokenizer's tokens stand for."""
import json
import re


def byte_of_character():
    """The printable stand-ins that byte-level tokenizers use for the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {chr(byte): byte for byte in plain}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


def token_bytes(description):
    """Bytes of each token by id; b"" for special tokens, which aren't text."""
    model = description.get("model", {})
    vocabulary = model.get("vocab", {})
    if isinstance(vocabulary, list):  # Unigram: pairs of token and score
        vocabulary = {entry[0]: index for index, entry in enumerate(vocabulary)}
    byte_level = '"ByteLevel"' in json.dumps(description)
    stand_ins = byte_of_character()
    result = {}
    for token, index in vocabulary.items():
        fallback = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
        if byte_level and all(character in stand_ins for character in token):
            result[index] = bytes(stand_ins[character] for character in token)
        elif fallback:
            result[index] = bytes([int(fallback[1], 16)])
        else:
            result[index] = token.replace("\u2581", " ").encode()
    for added in description.get("added_tokens", []):
        result[added["id"]] = b"" if added.get("special") else added["content"].encode()
    return [result.get(index, b"") for index in range(max(result, default=-1) + 1)]
