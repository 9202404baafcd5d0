"""Ways with a row of weights a class: K x d numbers, learned in passes over the rows.

P = R (d + 1) parameters, s bytes a number, w threads, D = d + 1, R scores a row (K, or 1 for two classes)

    a pass       4 n d R operations (scores, then their slopes times the rows) and n R exponentials
    pairs        2 m P numbers, m = 20 (10 where P is past a million): what L-BFGS remembers
    factors      D^2 for all classes, and D^2 for each where that stays within a GiB: their curvatures are n R numbers
"""

from __future__ import annotations

from kway.planning.rates import Rates
from kway.planning.size import LABEL_BYTES, LABELLING, Size
from kway.planning.way import Way

PASSES = 40  # over all rows until tol = 1e-3, line searches and the start on a sample included: 15 to 80
PASSES_EACH = 90  # of separate classes, each rarer than its rest
DUE = 15  # iterations of a descent: factors of each class are made after as many as they cost in gradients, and again
DUE_EACH = 25  # after twice as many; of separate classes
_FEW_ROWS = 2.5  # times as many where a class has fewer rows than there are features
_FEW_PASSES = 1.5  # times as many passes there
A_PASS = 1e-3  # seconds of a pass that sizes do not tell: 2 ms on 20,000 rows x 64
SAMPLED_PASSES = 12.5  # epochs of sampled softmax until three gain little, times these powers of K and of rows a class:
_MORE_CLASSES, _MORE_ROWS = 0.12, -0.36  # 5 to 52 epochs over 2,000 to 20,000 classes of 1 to 40 rows
NEGATIVES = 1024  # classes that a row of sampled softmax is held against
SAMPLED_BATCH = 256  # rows of a step
A_SAMPLED_STEP = 1e-3  # seconds of one that sizes do not tell: draws, and handing parts to threads three times
_THIN = 0.6  # of the product's rate, what products of a batch reach
_MOVED = 25  # bytes passed a byte of the class rows of a step: decayed, gathered, moved
_SCORING = 1.1  # times as many products, with those that find the hard classes
WATCHED, _WATCHED_EXPS = 1000, 3  # rows whose exact loss ends an epoch; exponentials that a score takes as long as
SAMPLED_ROOM = 18 * 2**20  # bytes of a batch against its classes, and of blocks of exact scores
COPIED_ONCE = 2.0**28  # bytes of weights up to which they are copied at the end, apart from their biases
FACTOR_FEATURES, SPARSE_FACTOR_FEATURES = 4000, 1000  # of a factor that is a matrix (preconditioners/moments.py)
MOST_FACTORS = 2**30  # bytes of those of each class
_LONG = 2**20  # parameters from which L-BFGS remembers half as many pairs
_ROOM = 3 * 2**20  # bytes of small things
COPIED = 2.0**26  # bytes of a block of rows in float64 (data/blocks/row_blocks.py)
_MERGED = 3.5  # times the means of a block, while they are merged into those so far
CHECKED = 1e-6  # seconds of a row that is asked for, whatever its size
VECTORS = 8  # theta, its gradient, the step before, the direction, ...: what is held at once beside the pairs
A_WORKER = 3  # weights, gradient and product of one thread


def softmax_way(size: Size, rates: Rates) -> Way:
    """All classes in one problem, by preconditioned L-BFGS."""
    operations, seconds = _descent(size, rates, PASSES, DUE)
    return _class_rows(
        size, rates, "softmax", "SoftmaxClassifier()", lbfgs_bytes(size, rates.cores, DUE), operations, seconds,
        "gives up nothing",
    )  # fmt: skip


def one_vs_all(size: Size, rates: Rates) -> Way:
    """Each class against the rest: no class knows of the others."""
    operations, seconds = _descent(size, rates, PASSES_EACH, DUE_EACH)
    return _class_rows(
        size, rates, "one-vs-all", "LogisticClassifier(), SVMClassifier(multiclass='one-vs-all')",
        lbfgs_bytes(size, rates.cores, DUE_EACH), operations, seconds, "gives up scores made to be compared",
    )  # fmt: skip


def stochastic(size: Size, rates: Rates) -> Way:
    """Softmax by SGD: no pairs and no factors, the weights and a running gradient."""
    operations, seconds = _descent(size, rates, PASSES, DUE)
    held = size.data_bytes + 4 * size.parameters * size.itemsize
    return _class_rows(
        size, rates, "softmax by SGD", "SoftmaxClassifier(solver='sgd', batch_size=256)", held, operations, seconds,
        "gives up the optimum, which is approached and not reached",
    )  # fmt: skip


def sampled_softmax(size: Size, rates: Rates) -> Way:
    """Each row against its class and a sample of the others; weights, which are held once, and two numbers a class."""
    weights = size.parameters * size.itemsize
    held = _sampled_bytes(size) + weights + (weights if weights <= COPIED_ONCE else 0)
    return _sampled_way(size, rates, "sampled softmax", "SoftmaxClassifier(solver='sampled')", held)


def mapped_softmax(size: Size, rates: Rates) -> Way:
    """The same with weights in a file, of which the rows that a step touches are read and written."""
    return _sampled_way(
        size, rates, "mapped softmax", "SoftmaxClassifier(solver=Sampled(weights=FOLDER))", _sampled_bytes(size)
    )


def sampled_passes(size: Size) -> float:
    """Epochs of sampled softmax: a class is moved by its own rows, so the fewer these are, the more epochs."""
    return SAMPLED_PASSES * size.K**_MORE_CLASSES * (size.n / size.K) ** _MORE_ROWS


def _sampled_bytes(size: Size) -> float:
    return size.data_bytes + LABEL_BYTES * (size.n + size.K) + SAMPLED_ROOM


def _sampled_way(size: Size, rates: Rates, name: str, call: str, held: float) -> Way:
    """Steps of a batch of rows against NEGATIVES classes, and the exact loss of some rows after each epoch."""
    seen, steps = min(size.K, NEGATIVES), size.n / SAMPLED_BATCH
    products = 4.0 * size.n * size.d * seen * _SCORING
    moved = _MOVED * seen * size.parameters / size.scores * size.itemsize
    step = A_SAMPLED_STEP + moved / rates.memory
    scores = min(size.n, WATCHED) * size.K
    exact = scores * (2.0 * size.d / rates.product + _WATCHED_EXPS / rates.exps)
    epoch = products / (_THIN * rates.product) + size.n * seen / rates.exps + steps * step + exact
    passes = sampled_passes(size)
    return _class_rows(
        size, rates, name, call, held, passes * (products + 2.0 * size.d * scores), passes * epoch,
        "gives up the exact sum over classes, which is estimated",
    )  # fmt: skip


def centroids(size: Size, rates: Rates) -> Way:
    """The mean of each class: one pass, a block of rows at a time, copied as float64, then its means merged."""
    table, copied = size.K * size.d, min(8.0 * size.values, COPIED)
    means = min(8.0 * table, COPIED)  # of a block, and what is made of them while they are merged
    held = size.data_bytes + size.itemsize * table + max(copied + means, _MERGED * means) + 3 * LABEL_BYTES * size.n
    seconds = (size.values * 200 + table * 1000 + size.n * LABELLING) / rates.memory  # one thread, through new pages
    return _class_rows(
        size, rates, "centroids", "CentroidClassifier()", held, 2.0 * size.values, seconds,
        "gives up the shape of classes: each is one round cloud",
    )  # fmt: skip


def lbfgs_bytes(size: Size, threads: int, iterations: int) -> int:
    """Memory of a fit by L-BFGS, rows included."""
    n, d, R, P, s = size.n, size.d, size.scores, size.parameters, size.itemsize
    pairs = 2 * (20 if P <= _LONG else 10) * P
    block = max(64, min(2048, 2**20 // d, 2**21 // R)) * R
    turned = size.rows_bytes if size.sparse else 0  # CSR rows are also kept by column
    sample = _sampled(size) * d * size.density
    numbers = pairs + (VECTORS + A_WORKER * threads) * P + threads * block + sample
    held = size.data_bytes + turned + numbers * s + LABEL_BYTES * n
    return int(held + _factor_bytes(size, threads, iterations) + _ROOM)


def _factor_bytes(size: Size, threads: int, iterations: int) -> float:
    """The preconditioners: shared by all classes, and one a class with the curvatures (R, n) that it comes from."""
    R, D, s = size.scores, size.d + 1, size.itemsize
    if _wide(size):
        return 4.0 * R * D * s + min(R * size.n * s, MOST_FACTORS)  # diagonals
    matrix = D * D * (8 if size.d <= 128 else s)
    shared = (threads + 3) * matrix
    if R * matrix > MOST_FACTORS:
        return shared
    if sets := _factor_sets(size, iterations):
        weighed = threads * size.n * D * 8 if size.d <= 128 else 0  # all rows, by the weights of a class, a worker
        return shared + sets * R * matrix + min(R * size.n * s, MOST_FACTORS) + weighed
    return shared + (R * (matrix + _sampled(size) * s) if _sampled(size) else 0)


def _wide(size: Size) -> bool:
    """Whether a factor is a diagonal alone."""
    return size.d > (SPARSE_FACTOR_FEATURES if size.sparse else FACTOR_FEATURES)


def _drawn(size: Size) -> int:
    """Rows for a factor of one class."""
    return min(size.n, 5 * size.d if size.d > 128 else size.n)


def _factor_sets(size: Size, iterations: int) -> int:
    """How many sets of factors of each class are held at once: a second is made while the first is in use."""
    D = size.d + 1
    due = D * (_drawn(size) + D) / (4 * size.n)
    return min(2, int(iterations * (_FEW_ROWS if _few_rows(size) else 1) / due))


def _few_rows(size: Size) -> bool:
    """Whether a class has fewer rows than there are features."""
    return size.n < size.d * size.scores


def _sampled(size: Size) -> int:
    """Rows of the sample that the descent starts on."""
    drawn = 8 * size.d + 1000
    return drawn if size.n > 2 * drawn else 0


def pass_seconds(size: Size, rates: Rates) -> float:
    """One value and gradient over all rows and classes, and the pairs that a step of L-BFGS looks through."""
    through = 4.0 * size.values * size.scores
    wider = size.itemsize / 4  # float64: half as fast
    products = wider * through / (2 * rates.sparse if size.sparse else rates.product)
    pairs = 4.0 * 20 * size.parameters * size.itemsize / rates.memory
    return max(products, size.rows_bytes / rates.memory) + size.n * size.scores / rates.exps + pairs


def factor_operations(size: Size, iterations: int = DUE) -> float:
    """Of the factors of each class, all that a descent makes; none where it ends before."""
    R, D = size.scores, size.d + 1
    if _wide(size) or R * D * D * size.itemsize > MOST_FACTORS:
        return 0.0
    wider = 2 if size.d <= 128 else size.itemsize / 4  # few features: in float64
    return _factor_sets(size, iterations) * R * 2.0 * wider * D * D * (_drawn(size) + D)


def _descent(size: Size, rates: Rates, passes: int, iterations: int) -> tuple[float, float]:
    """Operations and seconds of so many passes and of the factors."""
    shared = 0.0 if _wide(size) else min(size.n, 8 * size.d + 1000) * (size.d + 1.0) ** 2
    factors = shared + factor_operations(size, iterations)
    through = passes * (_FEW_PASSES if _few_rows(size) and not _wide(size) else 1.0)
    operations = through * 4.0 * size.values * size.scores + factors
    return operations, through * (A_PASS + pass_seconds(size, rates)) + factors / rates.product


def _class_rows(
    size: Size, rates: Rates, name: str, call: str, held: float, operations: float, seconds: float, gives_up: str
) -> Way:
    """A way whose model is K rows of d numbers: an answer is their product with a row."""
    model = size.parameters * size.itemsize + LABEL_BYTES * size.K
    answer = max(2.0 * size.d * size.density * size.scores / rates.product, size.scores / rates.exps)
    answer += CHECKED + 40.0 * size.d * size.density / rates.memory
    whole = seconds + (held - size.rows_bytes) / rates.fresh
    return Way(name, call, size.parameters, int(held), model, model, operations, whole, answer, gives_up)
