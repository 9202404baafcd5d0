"""Parameters as JSON and back, and what a hostile file cannot make kway do."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.errors import ModelFileError
from kway.modelfile.values import Packed, decode_value, encode_value

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
keys = st.integers() | st.text() | st.booleans()
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3) | st.tuples(inner)
)


def same(a, b):
    if isinstance(a, float):
        return isinstance(b, float) and (a == b or (math.isnan(a) and math.isnan(b))) and repr(a) == repr(b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return type(a) is type(b) and a == b


@settings(deadline=None, max_examples=60)
@given(nested)
def test_plain_values_round_trip_through_strict_json(value):
    text = json.dumps(encode_value(value, "here"), allow_nan=False)
    assert same(decode_value(json.loads(text)), value)


def test_numpy_scalars_become_plain():
    assert encode_value(np.float32(0.5), "") == 0.5
    assert encode_value(np.int8(3), "") == 3
    assert encode_value(np.bool_(True), "") is True


@pytest.mark.parametrize("array", [np.array([1.5, np.inf]), np.arange(4).reshape(2, 2), np.array(["a", "bb"])])
def test_small_arrays_round_trip(array):
    back = decode_value(json.loads(json.dumps(encode_value(array, ""))))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_a_part_of_kway_round_trips():
    from kway.search.metrics import Gaussian

    assert decode_value(json.loads(json.dumps(encode_value(Gaussian(2.0), "")))) == Gaussian(2.0)


def test_an_unfitted_classifier_round_trips(tiny):
    back = decode_value(json.loads(json.dumps(encode_value(tiny(shrink=math.inf), ""))))
    assert type(back) is tiny
    assert back.shrink == math.inf


@dataclass(frozen=True)
class Stranger:
    command: str = "rm"


def test_a_dataclass_from_elsewhere_is_not_a_part():
    with pytest.raises(ModelFileError, match="without code cannot contain"):
        encode_value(Stranger(), "here")


@pytest.mark.parametrize(
    "value",
    [
        {"$": "part", "module": "os", "name": "system", "values": {"command": "true"}},
        {"$": "part", "module": "kway.searching", "name": "x", "values": {}},
        {"$": "part", "module": "kway.search.results", "name": "Index", "values": {}},
        {"$": "part", "module": "kway.search.metrics", "name": "np", "values": {}},
        {"$": "part", "module": "kway.search.nothing", "name": "x", "values": {}},
        {"$": "part", "module": 7, "name": "x", "values": {}},
        {"$": "estimator", "class": "Popen", "params": {}},
        {"$": "estimator", "class": "load", "params": {"path": "/etc/passwd"}},
        {"$": "array", "dtype": "O", "items": {"$": "list", "items": []}},
        {"$": "nothing"},
        {"$": ["list"]},
        {"$": "tuple"},
        {"$": "dict", "items": [[{"$": "list", "items": []}, 1]]},
    ],
)
def test_hostile_or_unknown_values_are_refused(value):
    with pytest.raises(ModelFileError):
        decode_value(value)


def test_deep_nesting_is_refused_not_a_crash():
    value = 1
    for _ in range(5000):
        value = {"$": "list", "items": [value]}
    with pytest.raises(ModelFileError):
        decode_value(value)


def test_a_packed_manifest_is_not_encoded_again():
    manifest = Packed({"facts": encode_value({"a": (1, 2)}, "")})
    once = encode_value({"inner": manifest}, "")
    assert decode_value(json.loads(json.dumps(once))) == {"inner": dict(manifest)}
    assert len(json.dumps(encode_value({"inner": Packed({"facts": once})}, ""))) < 100 + len(json.dumps(once))
