"""One model file -> another. Changes inside are signed again, so that the checks of the content are what is met."""

from __future__ import annotations

import copy
import hashlib

import numpy as np

from kway.modelfile import container

NASTY = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**40, 2**63 - 1, 2**63, 10**40, -(2**63), 0.0, -0.5, 0.5, 1e-300,
    1e300, -1e300, "", "x", "auto", "euclidean", "dot", "hamming", "flat", "lsh", "float16", "O", "\ud800", "é" * 50,
    [], {},
    {"$": "list", "items": []}, {"$": "list", "items": [1, 2, 3]}, {"$": "tuple", "items": ["a"]},
    {"$": "dict", "items": []}, {"$": "dict", "items": [["a", 1]]}, {"$": "float", "value": "inf"},
    {"$": "float", "value": "nan"}, {"$": "float", "value": "-inf"}, {"$": "float", "value": "x"},
    {"$": "array", "dtype": "<U500000000", "items": {"$": "list", "items": ["a"]}},
    {"$": "array", "dtype": "<f8", "items": {"$": "list", "items": [1.0, 2.0]}},
    {"$": "estimator", "class": "SoftmaxClassifier", "params": {}},
    {"$": "part", "module": "kway.search", "name": "Gaussian", "values": {"sigma": 1.0}},
    {"$": "index", "name": "flat", "values": {"store": 3}}, {"$": "index", "name": "kdtree", "values": {}},
    {"$": "index", "name": "sharded", "values": {"shards": 2**40}}, {"$": "index", "name": [1], "values": []},
    {"$": "part", "module": "kway.search", "name": "Haversine", "values": {}},
]  # fmt: skip
VALUES = [0, 1, -1, 2, 3, 5, 127, 255, 2**28, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63)]
FLOATS = [0.0, -1.0, 1e-300, 1e30, 1e300, np.inf, -np.inf, np.nan]
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "b1"]


class Subject:
    """A file, and its content to be altered."""

    def __init__(self, path):
        opened = container.read(path)
        self.content = path.read_bytes()
        self.manifest = {k: v for k, v in opened.manifest.items() if not k.endswith("sha256")}
        self.tensors = {name: np.array(tensor) for name, tensor in opened.tensors.items()}

    def changed(self, rng):
        """(how, content of the altered file)."""
        how, change = CHANGES[rng.integers(len(CHANGES))]
        if how.startswith("raw"):
            return how, change(self.content, rng)
        manifest, tensors = copy.deepcopy(self.manifest), dict(self.tensors)
        for _ in range(1 + (rng.random() < 0.2)):
            change(manifest, tensors, rng)
        return how, _signed(manifest, tensors)


def _signed(manifest, tensors):
    """The file as `container.write` writes it, whatever it holds, but in memory."""
    ordered = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    table = container._table({name: tensors[name] for name in ordered})
    payload = b"".join(tensors[name].tobytes() for name in ordered)
    header = container._header({"format": "kway", **manifest}, table, hashlib.sha256(payload).hexdigest())
    return header + payload


# ---- bytes


def flip_header(content, rng):
    end = 8 + int.from_bytes(content[:8], "little")
    return _flipped(content, rng.integers(end), rng)


def flip_anywhere(content, rng):
    return _flipped(content, rng.integers(len(content)), rng)


def cut(content, rng):
    return content[: rng.integers(len(content))]


def _flipped(content, at, rng):
    return content[:at] + bytes([content[at] ^ (1 << int(rng.integers(8)))]) + content[at + 1 :]


# ---- arrays


def _pick(tensors, rng):
    return sorted(tensors)[rng.integers(len(tensors))]


def flip_bit(manifest, tensors, rng):
    name = _pick(tensors, rng)
    raw = np.frombuffer(tensors[name].tobytes(), np.uint8).copy()
    if raw.size:
        raw[rng.integers(raw.size)] ^= np.uint8(1 << int(rng.integers(8)))
        tensors[name] = raw.view(tensors[name].dtype).reshape(tensors[name].shape)


def set_value(manifest, tensors, rng):
    name = _pick(tensors, rng)
    array = tensors[name].copy()
    if not array.size:
        return
    pool = FLOATS if array.dtype.kind == "f" else VALUES
    value = pool[rng.integers(len(pool))]
    with np.errstate(all="ignore"):
        place = slice(None) if rng.random() < 0.2 else rng.integers(array.size)
        array.reshape(-1)[place] = np.array(value).astype(array.dtype)
    tensors[name] = array


def swap(manifest, tensors, rng):
    one, other = _pick(tensors, rng), _pick(tensors, rng)
    tensors[one], tensors[other] = tensors[other], tensors[one]


def shuffle(manifest, tensors, rng):
    name = _pick(tensors, rng)
    flat = tensors[name].reshape(-1).copy()
    rng.shuffle(flat)
    tensors[name] = flat.reshape(tensors[name].shape)


def retype(manifest, tensors, rng):
    name = _pick(tensors, rng)
    with np.errstate(all="ignore"):
        tensors[name] = tensors[name].astype(DTYPES[rng.integers(len(DTYPES))])


def reshape(manifest, tensors, rng):
    name = _pick(tensors, rng)
    array = tensors[name]
    ways = [
        lambda a: a[:1], lambda a: a[:0], lambda a: a[1:], lambda a: a[:-1], lambda a: a.T, lambda a: a.reshape(-1),
        lambda a: a.reshape(1, -1), lambda a: a.reshape(-1, 1), lambda a: np.concatenate([a, a]),
        lambda a: a.reshape(-1)[:1].reshape(()) if a.size else a, lambda a: np.empty((2**40, 0), a.dtype),
        lambda a: a[..., :1], lambda a: a[..., :0], lambda a: a[..., :-1], lambda a: np.concatenate([a, a], axis=-1),
    ]  # fmt: skip
    if array.ndim:
        tensors[name] = np.ascontiguousarray(ways[rng.integers(len(ways))](array))


def together(manifest, tensors, rng):
    """All arrays of one length become shorter or longer together, so that they agree with each other."""
    size = int(rng.choice([n for array in tensors.values() for n in array.shape] or [1]))
    keep = slice(None, -1) if rng.random() < 0.5 else slice(None, max(1, size // 2))
    for name, array in tensors.items():
        for axis, n in enumerate(array.shape):
            if n == size:
                array = array[(slice(None),) * axis + (keep,)]
        tensors[name] = np.ascontiguousarray(array)


def drop(manifest, tensors, rng):
    del tensors[_pick(tensors, rng)]


def extra(manifest, tensors, rng):
    stem, name = _pick(tensors, rng), _pick(tensors, rng)
    ways = [
        "index.ids",
        "index.codes",
        "weights",
        "rows",
        "rows.indptr",
        "support",
        "before.edges",
        f"{stem}2",
        "ids",
        stem,
    ]
    tensors[ways[rng.integers(len(ways))]] = tensors[name]


# ---- facts, parameters and the rest of the manifest


def leaf(manifest, tensors, rng):
    """A value anywhere in the manifest becomes another."""
    places = list(_places(manifest))
    if places:
        holder, key = places[rng.integers(len(places))]
        holder[key] = copy.deepcopy(NASTY[rng.integers(len(NASTY))])


def near_leaf(manifest, tensors, rng):
    """A number becomes one that is near, twice or none: inconsistent, but of the right kind."""
    places = [(h, k) for h, k in _places(manifest) if type(h[k]) in (int, float)]
    if places:
        holder, key = places[rng.integers(len(places))]
        value = holder[key]
        holder[key] = [value + 1, value - 1, value * 2, -value, 0, float(value)][rng.integers(6)]


def forget(manifest, tensors, rng):
    """A key, or an entry of a list, is gone."""
    holder, key = list(_places(manifest))[rng.integers(len(list(_places(manifest))))]
    del holder[key]


def deep(manifest, tensors, rng):
    """Facts nested deeper than any model's: plain lists, or as values are written."""
    value, plain = 1, rng.random() < 0.3
    for _ in range(700 if plain else int(rng.choice([50, 150, 300, 440]))):
        value = [value] if plain else {"$": "list", "items": [value]}
    manifest["facts"] = {"$": "dict", "items": [["n_iter", value]]}


def other_class(manifest, tensors, rng):
    names = [
        "SoftmaxClassifier",
        "NeighborsClassifier",
        "CentroidClassifier",
        "ConformalClassifier",
        "Features",
        "load",
    ]
    manifest["class"] = names[rng.integers(len(names))]


def _places(value):
    """(holder, key) of everything below a value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        if key == "format":
            continue
        yield value, key
        yield from _places(value[key])


_INSIDE = (
    flip_bit, flip_bit, set_value, set_value, swap, shuffle, retype, reshape, reshape, together, drop, extra, leaf,
    leaf, leaf, near_leaf, near_leaf, forget, deep, other_class,
)  # fmt: skip
CHANGES = [("raw header", flip_header), ("raw flip", flip_anywhere), ("raw cut", cut)] + [
    (change.__name__, change) for change in _INSIDE
]
