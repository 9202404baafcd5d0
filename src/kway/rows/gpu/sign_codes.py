"""The nearest of a billion rows by codes of 512 bits: signs of rotated rows, 64 bytes each, on a device.

1. Hamming   the codes that agree with the query's signs in most bits, at least `keep` of them
2. float     of these, the k of the largest sum of q_j (+-1) over the code's signs: the query is not rounded

On a Hopper GPU the codes stream through the binary matrix unit (cuda_kernels.py): thresholds that `keep` codes are
known to reach come from a sample and are renewed twice; codes that pass are listed, a thousand or so of a billion.
Elsewhere, and for queries whose list overflowed (very many equal codes), signs are multiplied as numbers.

SignFilter is the first filter of a search over such codes: a row as near as the k-th found has a cosine to the query of
at least c (its length, the k-th key), so that its bits differ in Binomial(512, arccos(c) / pi); if its z-th deviation
lies within the bits that were listed, rows outside the list may be left out, except for the chance that z stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import pi
from typing import NamedTuple

import numpy as np

from kway.rows.gpu import cuda_kernels
from kway.rows.gpu.device import Device, Tensor, load_torch
from kway.rows.gpu.exact_search import NearestRows, parts_of

BITS, TILE = 512, 64  # bits of a code; codes of a tile
CODE_WORDS = BITS // 32  # 32-bit words of a code
_CAP = 8192  # codes listed per query (G1)
BLOCK_CODES = 2**18  # codes that first thresholds come from, and that are multiplied as numbers at once (G1)
RENEWED = (2**22, 2**26)  # codes after which thresholds are renewed (G1)
LEAST_LISTED = 2**20  # codes from which on lists pay (G1)
_SPARE = 16  # times `keep` are kept if all codes are multiplied: about what lists hold in the end
_NOBODY = -(2.0**100)


@dataclass(frozen=True)
class SignCodes:
    """Codes (n, 16) int32 of n rows, n a multiple of 64 (`rows` of them are real), and the signs of a sample."""

    device: Device
    words: Tensor
    rows: int
    sample: Tensor  # (s, 512) float16, +-1

    @staticmethod
    def of(device: Device, words: Tensor, rows: int | None = None) -> SignCodes:
        """Codes that are on the device."""
        real = len(words) if rows is None else rows
        return SignCodes(device, words, real, _signs(words[: min(BLOCK_CODES, real) // TILE * TILE]))

    @property
    def nbytes(self) -> int:
        """Int8Queries on the device."""
        return int(4 * self.words.numel() + 2 * self.sample.numel())

    def nearest(self, queries: Tensor, k: int = 1, keep: int = 64) -> NearestRows:
        """Positions (q, k) and distances (q, k) float64, nearest first, of queries (q, 512) float32.

        The distance is the product with the code's signs, negated: lower is nearer, ties go to the lower position.
        """
        queries, keep = queries.float(), min(max(keep, k), self.rows)
        listed = (
            self.rows >= LEAST_LISTED
            and self.device.is_gpu
            and cuda_kernels.can_compile()
            and 8 * keep * TILE <= BLOCK_CODES
        )
        with self.device.full_precision():
            return CodeLists(self, queries, keep).nearest(k) if listed else self.by_products(queries, k, keep)

    def by_products(self, queries: Tensor, k: int, keep: int) -> NearestRows:
        """The same, every code multiplied."""
        kept = self.multiplied(queries, min(_SPARE * keep, self.rows))
        products = self._products(queries, kept)
        order = products.sort(dim=1, descending=True, stable=True).indices[:, :k]
        return NearestRows(kept.gather(1, order), -products.gather(1, order).double())

    def multiplied(self, queries: Tensor, keep: int) -> Tensor:
        """Positions (q, keep) of the codes that agree most, ties to the lower position, ascending positions."""
        torch, best = self.device.torch, None
        signs = _sign(queries).half() if self.device.is_gpu else _sign(queries)
        for first in range(0, self.rows, BLOCK_CODES):
            block = _signs(self.words[first : min(self.rows, first + BLOCK_CODES)]).to(signs.dtype)
            agree = (signs @ block.T).long()  # (q, c), whole numbers up to 512
            ranks = (agree << 32) - torch.arange(first, first + len(block), device=self.device.name)
            ranks = ranks if best is None else torch.cat([best, ranks], 1)
            best = ranks.topk(min(keep, ranks.shape[1]), 1).values
        assert best is not None
        return ((-best) & 0xFFFFFFFF).sort(1).values

    def _products(self, queries: Tensor, kept: Tensor) -> Tensor:
        """Sums (q, keep) of q_j (+-1)."""
        parts = []
        for some in self.device.torch.arange(len(queries), device=self.device.name).split(256):
            signs = _signs(self.words[kept[some].reshape(-1)]).float().view(*kept[some].shape, BITS)
            parts.append((signs @ queries[some][:, :, None])[:, :, 0])
        return self.device.torch.cat(parts)


class Listed(NamedTuple):
    """Of each code listed (q, CAP): bits that agree with the query's, and the product of query and signs."""

    agree: Tensor
    products: Tensor


class CodeLists:
    """Queries, their thresholds and the lists of codes that passed."""

    def __init__(self, codes: SignCodes, queries: Tensor, keep: int) -> None:
        self.codes, self.queries, self.keep = codes, queries, keep
        device, self.q = codes.device, len(queries)
        self.n = next((n for n in cuda_kernels.CODE_QUERIES if self.q <= n), cuda_kernels.CODE_QUERIES[-1])
        names = tuple(map(cuda_kernels.kernel_name, cuda_kernels.CODE_QUERIES))
        self.module = cuda_kernels.compiled(cuda_kernels.SOURCE, names)
        self.words = device_sign_words(queries)
        self.images = _images(device, self.words, self.n)
        self.shift = (queries > 0).sum(1).int() - BITS // 2
        self.thresholds = device.torch.full((len(self.images) * self.n,), 2**30, **_int32(device))
        self.counts = device.zeros(self.q, "int32")
        self.ids = device.empty((self.q, _CAP), "int32")

    def nearest(self, k: int) -> NearestRows:
        """The k nearest of those listed; a query whose list overflowed is asked again, all codes multiplied."""
        self.fill()
        products = self.measured().products
        best = products.topk(k, 1)
        found = NearestRows(self.ids.gather(1, best.indices).long(), -best.values.double())
        lost = ((self.counts > _CAP) | _tied(products, best.values)).nonzero()[:, 0]
        for some in lost.split(64) if len(lost) else ():
            found.ids[some], found.distances[some] = self.codes.by_products(self.queries[some], k, self.keep)
        return found

    def fill(self) -> None:
        """List the codes, thresholds renewed on the way."""
        self._sample()
        n, first = len(self.codes.words), 0
        for last in [cut for cut in RENEWED if cut < n] + [n]:
            if first:
                kth = self.measured().agree.topk(self.keep, 1).values[:, -1]
                self.thresholds[: self.q] = kth - 1 + self.shift
            self._scan(first // TILE, last // TILE)
            first = last

    def _sample(self) -> None:
        """The keep-th of the best of the sample's tiles: so many codes agree that well at least."""
        for part in parts_of(self.q, 256):
            scores = _sign(self.queries[part]).half() @ self.codes.sample.T
            kth = scores.view(len(scores), -1, TILE).amax(2).float().topk(self.keep, 1).values[:, -1]
            self.thresholds[part] = ((kth + BITS) / 2).int() - 1 + self.shift[part]

    def _scan(self, a: int, b: int) -> None:
        name, shared = cuda_kernels.kernel_name(self.n), cuda_kernels.shared_bytes(self.n)
        blocks = self.module.blocks_a_multiprocessor(name, cuda_kernels.CODE_THREADS, shared)
        device = self.codes.device
        grid = blocks * device.torch.cuda.get_device_properties(device.name).multi_processor_count
        for i, image in enumerate(self.images):
            own = slice(i * self.n, i * self.n + self.n)
            arguments = (
                self.codes.words, a, b, image, self.thresholds[own], self.counts[own], self.ids[own], _CAP,
            )  # fmt: skip
            self.module.launch(name, grid, cuda_kernels.CODE_THREADS, shared, arguments)

    def measured(self) -> Listed:
        """What is known of the codes listed so far."""
        from kway.rows.gpu.search_kernels import measure_codes

        device = self.codes.device
        agree = device.torch.full((self.q, _CAP), -1, **_int32(device))
        products = device.torch.full((self.q, _CAP), _NOBODY, device=device.name)
        measure_codes[(self.q, _CAP // 128)](
            self.codes.words,
            self.words,
            self.queries,
            self.ids,
            self.counts,
            agree,
            products,
            self.codes.rows,
            _CAP,
            128,
        )
        return Listed(agree, products)


def device_sign_words(values: Tensor) -> Tensor:
    """(n, 512) numbers -> (n, 16) int32, a bit a positive number."""
    torch = load_torch()
    bits = (values > 0).view(-1, CODE_WORDS, 32).long() << torch.arange(32, device=values.device)
    return bits.sum(2).to(torch.int32)


def _images(device: Device, words: Tensor, n: int) -> Tensor:
    """The shared-memory operand (parts, n * 32) int32 of each n queries' words: permuted, 16-byte units swizzled.

    The second half of each line is never multiplied; it repeats the first.
    """
    torch = device.torch
    given = torch.nn.functional.pad(words, (0, 0, 0, -len(words) % n)).view(-1, n * CODE_WORDS)
    return given[:, _places(device, n)]


@lru_cache(maxsize=8)
def _places(device: Device, n: int) -> Tensor:
    """Which word (n * 32,) of n queries lies where."""
    row, unit, word = np.ix_(range(n), range(8), range(4))
    held = np.array(cuda_kernels.WORD_PLACES)[(4 * (unit ^ (row % 8)) + word) % CODE_WORDS]
    return device.put((row * CODE_WORDS + held).reshape(-1))


def _tied(products: Tensor, best: Tensor) -> Tensor:
    """Whether (q,) the k-th product is shared by one that was not taken: the list's order is no position's."""
    return (products == best[:, -1:]).sum(1) > (best == best[:, -1:]).sum(1)


def _signs(words: Tensor) -> Tensor:
    """(n, 16) int32 -> (n, 512) float16, +-1."""
    shifts = load_torch().arange(32, device=words.device, dtype=words.dtype)
    return (((words[:, :, None] >> shifts) & 1).view(-1, BITS) * 2 - 1).half()


def _sign(values: Tensor) -> Tensor:
    return (values > 0).float() * 2 - 1


def _int32(device: Device) -> dict[str, object]:
    return {"dtype": device.torch.int32, "device": device.name}


_KEEP = 128  # rows listed at least (G1)
LIST_TOGETHER = 1024  # queries whose lists are filled together (G1)


class SignLists(NamedTuple):
    """Rows (q, c), whether they are real (q, c), sums of q_j (+-1) (q, c), and `most` (q,), -1: not all listed."""

    ids: Tensor
    real: Tensor
    products: Tensor
    most: Tensor


@dataclass(frozen=True)
class SignFilter:
    """Codes of 512 signs; z normal deviations; the shortest and the longest of the rows."""

    signs: SignCodes
    z: float
    shortest: float
    longest: float

    @staticmethod
    def pays(device: Device, bits: int, wide: int, rows: int) -> bool:
        """Whether such codes are filtered there."""
        wanted = bits == 1 and wide == BITS and rows >= LEAST_LISTED
        return wanted and device.is_gpu and cuda_kernels.can_compile()

    def lists(self, turned: Tensor) -> SignLists:
        """The rows that agree most with queries (q, 512) float32."""
        torch = self.signs.device.torch
        lists = CodeLists(self.signs, turned, _KEEP)
        lists.fill()
        agree, products = lists.measured()
        real = agree >= 0  # padding is not measured
        last = lists.thresholds[: lists.q] - lists.shift + 1  # agreeing bits from which on every row is listed
        most = (BITS - last).where(lists.counts <= agree.shape[1], -1)
        return SignLists(torch.where(real, lists.ids.long(), 0), real, products, most)

    def enough(self, keys: Tensor, norms: Tensor, squared: bool, most: Tensor) -> Tensor:
        """Whether (q,) no row outside the lists can have a key of at most keys (q,); norms (q,) of the queries."""
        if squared:  # l^2 / 2 - l |q| cos <= key; the cosine is least where l^2 = -2 key
            length = (-2.0 * keys).clamp(min=0.0).sqrt().clamp(self.shortest, self.longest)
            need, least = 0.5 * length.square() - keys, length * norms
        else:
            length = keys.new_full(keys.shape, self.shortest).where(keys >= 0, self.longest)
            need, least = -keys, length * norms
        cosine = (need / least.where(least > 0, 1.0)).where(least > 0, -1.0).clamp(-1.0, 1.0)
        p = cosine.arccos() / pi
        allowed = BITS * p + self.z * (BITS * p * (1.0 - p)).sqrt() + 0.5
        return keys.isfinite() & (allowed < most + 1)
