"""A process that loads altered files and asks them, under a limit of memory: one line in, one line out.

in    PATH<tab>QUERIES      out   JSON {"outcome": "refused" | "answered" | "explained" | "raw", "error": ...}
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
import warnings
from pathlib import Path

import kway
import kway.modelfile
from file_attack.subjects import queries
from kway.errors import KwayError, ModelFileError

MEMORY = 3 * 2**30  # bytes beyond what is mapped when the kernels are compiled
METHODS = ("predict", "predict_proba", "decision_function", "predict_topk", "explain", "kneighbors", "predict_set")


def attempt(path, rows):
    """What became of one file."""
    try:
        kway.modelfile.info(path)
        model = kway.load(path)
    except ModelFileError:
        return {"outcome": "refused"}
    except BaseException as error:
        return _raw("load", error)
    said = []
    for method in METHODS:
        try:
            if not hasattr(model, method):
                continue
            answer = getattr(model, method)(rows, 2) if method == "predict_topk" else getattr(model, method)(rows)
            if method == "predict" and not {*_labels(answer)} <= {*model.classes_.tolist(), _outlier(model)}:
                return {"outcome": "raw", "error": "predict gave no class", "where": "predict"}
        except KwayError as error:
            said.append(str(error))
        except ValueError as error:
            if "Input X contains" not in str(error):  # scikit-learn's own words, from between the steps of a Pipeline
                return _raw(method, error)
            said.append(str(error))
        except BaseException as error:
            return _raw(method, error)
    return {"outcome": "explained" if said else "answered"}


def _labels(answer):
    """The predicted labels, also if a row has a list of them."""
    return [label for row in answer.tolist() for label in (row if isinstance(row, list) else [row])]


def _outlier(model):
    inner = model
    while hasattr(inner, "estimator_"):
        if hasattr(inner, "unknown_"):
            return inner.unknown_
        inner = inner.estimator_
    return getattr(inner, "outlier_label", None)


def _raw(where, error):
    place = traceback.extract_tb(error.__traceback__)[-1]
    own = [f for f in traceback.extract_tb(error.__traceback__) if "/kway/" in f.filename]
    at = own[-1] if own else place
    return {
        "outcome": "raw",
        "error": f"{type(error).__name__}: {error}"[:300],
        "where": f"{where} {Path(at.filename).name}:{at.lineno}",
    }


def _limit():
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main():
    """Ask every whole model once, so that what follows compiles nothing, then the altered ones."""
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing that is printed gets in between
    for path in sorted(Path(sys.argv[1]).glob("*.kway")):
        found = attempt(path, queries(path.with_suffix(".json")))
        if found["outcome"] != "answered":
            print(json.dumps({"broken": path.name, **found}), file=answers, flush=True)
    _limit()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        path, asked = line.rstrip("\n").split("\t")
        print(json.dumps(attempt(path, queries(Path(asked)))), file=answers, flush=True)


if __name__ == "__main__":
    main()
