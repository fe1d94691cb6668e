"""Compressed vocabulary of the Engram tables: token id -> id of its normalised text."""
import json
import re
import unicodedata

SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def byte_alphabet():
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table, extra = {chr(b): b for b in keep}, 0x100
    for b in range(256):
        if b not in keep:
            table[chr(extra)] = b
            extra += 1
    return table


def normalise(s):
    s = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", s))
    s = "".join(ch for ch in s if unicodedata.category(ch)[0] != "M")
    s = "".join(ch.lower() for ch in s)
    s = re.sub("[ \t\r\n]+", " ", s)
    if s == " ":
        s = "\ue000"
    return s.strip(SPACE).replace("\ue000", " ")


def token_strings(spec):
    """tokenizer.json object -> (list of raw spellings, set of added ids)."""
    raw = {i: s for s, i in spec["model"]["vocab"].items()}
    added = {t["id"]: t["content"] for t in spec["added_tokens"]}
    raw.update(added)
    return [raw[i] for i in range(len(raw))], set(added)


def vocab_map(path):
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    raw, added = token_strings(spec)
    table, ids, out = byte_alphabet(), {}, []
    for i, s in enumerate(raw):
        data = s.encode() if i in added or any(ch not in table for ch in s) else bytes(table[ch] for ch in s)
        text = data.decode("utf-8", "replace")
        key = s if "\ufffd" in text else (normalise(text) or text)
        out.append(ids.setdefault(key, len(ids)))
    return out
