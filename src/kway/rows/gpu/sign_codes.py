"""Codes of 512 bits: the signs of rotated rows, 64 bytes per row, searched among a billion rows on a device.

1. Hamming   list the codes that agree with the query's signs in most bits, at least `keep` of them
2. float     of these, take the k codes with the largest sum of q_j (+-1), in which the query is not rounded

On a Hopper GPU, the binary matrix unit multiplies the codes (cuda_kernels.py). A code is listed if it agrees with the
query in a least number of bits, which `keep` codes of a sample reach. The codes are scanned in passes, each at most
GROWTH times as long as all before it, and before each pass the least number is raised to what `keep` of the listed
codes reach. So at least the GROWTH * keep nearest of all codes are listed in expectation, and a few thousand at most.
On other devices, and for queries whose list overflowed (very many equal codes), signs are multiplied as numbers.

SignFilter is the first filter of a search over such codes. A row that is as near as the k-th nearest has a cosine to
the query of at least c, and the number of its differing bits is Binomial(512, arccos(c) / pi). If the mean of that
number plus z standard deviations is within the bits that were listed, a row outside of the list is nearer with at most
the probability that belongs to z.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from math import pi
from typing import NamedTuple

import numpy as np

from kway.rows.gpu import cuda_kernels
from kway.rows.gpu.cuda_kernels import SignFormat
from kway.rows.gpu.device import Device, Tensor, load_torch, rows_that_fit
from kway.rows.gpu.exact_search import NearestRows
from kway.threads import spans

BITS, CODE_TILE = int(SignFormat.BITS), int(SignFormat.TILE)
CODE_WORDS = BITS // 32  # 32-bit words of a code
BLOCK_CODES = rows_that_fit(4 * BITS)  # codes whose signs are multiplied as numbers at a time; also the sample
CODE_LIST_SIZE = 8192  # codes that are listed per query, at most (decided by the benchmark gpu_bits)
GROWTH = 16  # codes scanned after a pass, divided by those before it, at most; it lists about GROWTH * keep (gpu_bits)
MIN_KEPT = 128  # smallest number of rows that the filter of signs lists (gpu_bits)


@dataclass(frozen=True)
class SignCodes:
    """Codes (n, 16) int32, n a multiple of 64, of which `rows` are not padding, and the signs of a sample."""

    device: Device
    words: Tensor
    rows: int
    sample: Tensor  # (s, 512) float16, +-1

    @staticmethod
    def build(device: Device, words: Tensor, rows: int | None = None) -> SignCodes:
        """Return the search over codes that are on the device."""
        n = len(words) if rows is None else rows
        sample = words[: min(BLOCK_CODES, n) // CODE_TILE * CODE_TILE]
        return SignCodes(device, words, n, unpack_codes(sample, 1, device.torch.float16))

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(4 * self.words.numel() + 2 * self.sample.numel())

    def nearest(self, queries: Tensor, k: int = 1, keep: int = 64) -> NearestRows:
        """Return positions (q, k) and distances (q, k) float64, nearest first, of queries (q, 512) float32.

        The distance is the negated product with the code's signs. Ties go to the lower position.
        """
        queries, keep = queries.float(), min(max(keep, k), self.rows)
        use_lists = (
            self.rows > BLOCK_CODES
            and self.device.is_gpu
            and cuda_kernels.can_compile(self.device.name)
            and 8 * keep * CODE_TILE <= BLOCK_CODES
        )
        with self.device.full_precision(), self.device.selected():
            return CodeLists(self, queries, keep).nearest(k) if use_lists else self.by_products(queries, k, keep)

    def by_products(self, queries: Tensor, k: int, keep: int) -> NearestRows:
        """Return the nearest codes after multiplying every code."""
        kept = self.best_matches(queries, min(GROWTH * keep, self.rows))
        products = self._products(queries, kept)
        order = products.sort(dim=1, descending=True, stable=True).indices[:, :k]
        return NearestRows(kept.gather(1, order), -products.gather(1, order).double())

    def best_matches(self, queries: Tensor, keep: int) -> Tensor:
        """Return ascending positions (q, keep) of the codes that agree most; ties go to the lower position."""
        torch, best = self.device.torch, None
        signs = _sign(queries).half() if self.device.is_gpu else _sign(queries)
        for first in range(0, self.rows, BLOCK_CODES):
            block = unpack_codes(self.words[first : min(self.rows, first + BLOCK_CODES)], 1, signs.dtype)
            agree = (signs @ block.T).long()  # (q, c), whole numbers up to 512
            ranks = (agree << 32) - torch.arange(first, first + len(block), device=self.device.name)
            ranks = ranks if best is None else torch.cat([best, ranks], 1)
            best = ranks.topk(min(keep, ranks.shape[1]), 1).values
        assert best is not None
        return ((-best) & 0xFFFFFFFF).sort(1).values

    def _products(self, queries: Tensor, kept: Tensor) -> Tensor:
        """Return the sums (q, keep) of q_j (+-1)."""
        parts = []
        for part in spans(len(queries), 256):
            signs = unpack_codes(self.words[kept[part].reshape(-1)], 1, queries.dtype).view(*kept[part].shape, BITS)
            parts.append((signs @ queries[part][:, :, None])[:, :, 0])
        return self.device.torch.cat(parts)


class ListedCodes(NamedTuple):
    """Per listed code (q, list size): the bits that agree with the query's, and the product of query and signs."""

    agree: Tensor
    products: Tensor


def pass_ends(n: int) -> list[int]:
    """Return after how many of n codes each pass ends: n last, GROWTH times less before it, but no less than a sample.

    The passes are counted from the end, so that the last one lists the same share of its codes at any n.
    """
    ends = [n]
    while ends[0] > GROWTH * BLOCK_CODES:
        ends.insert(0, -(-ends[0] // (GROWTH * CODE_TILE)) * CODE_TILE)
    return ends


class CodeLists:
    """Queries, and per query the list of the codes that agree with it in at least `least_agreement` bits."""

    def __init__(self, codes: SignCodes, queries: Tensor, keep: int) -> None:
        self.codes, self.queries, self.keep = codes, queries, keep
        device, self.q = codes.device, len(queries)
        self.n = next((n for n in cuda_kernels.CODE_QUERIES if self.q <= n), cuda_kernels.CODE_QUERIES[-1])
        names = tuple(map(cuda_kernels.kernel_name, cuda_kernels.CODE_QUERIES))
        self.module = cuda_kernels.compiled(cuda_kernels.SOURCE, names)
        self.words = device_sign_words(queries)
        self.images = _images(device, self.words, self.n)
        self.query_ones = (queries > 0).sum(1).int()
        self.least_agreement = device.zeros(self.q, "int32")
        self.counts = device.zeros(self.q, "int32")
        self.ids = device.empty((self.q, CODE_LIST_SIZE), "int32")

    def nearest(self, k: int) -> NearestRows:
        """Return the k nearest codes of the lists; if a list overflowed, multiply all codes for that query."""
        self.fill()
        products = self.measure().products
        best = products.topk(k, 1)
        nearest = NearestRows(self.ids.gather(1, best.indices).long(), -best.values.double())
        unsure = ((self.counts > CODE_LIST_SIZE) | _tied(products, best.values)).nonzero()[:, 0]
        for part in unsure.split(64) if len(unsure) else ():
            nearest.ids[part], nearest.distances[part] = self.codes.by_products(self.queries[part], k, self.keep)
        return nearest

    def fill(self) -> None:
        """List the codes in passes, and raise the least agreement before each."""
        first = 0
        for last in pass_ends(len(self.codes.words)):
            if first == 0:
                self._sample()
            else:
                self.least_agreement = self.measure().agree.topk(self.keep, 1).values[:, -1]
            self._scan(first // CODE_TILE, last // CODE_TILE)
            first = last

    def _sample(self) -> None:
        """Set the least agreement to the keep-th of the best per tile of the sample: at least `keep` codes reach it."""
        for part in spans(self.q, 256):
            scores = _sign(self.queries[part]).half() @ self.codes.sample.T
            kth = scores.view(len(scores), -1, CODE_TILE).amax(2).float().topk(self.keep, 1).values[:, -1]
            self.least_agreement[part] = ((kth + BITS) / 2).int()  # a product of signs: agreeing less differing bits

    def _scan(self, first_tile: int, last_tile: int) -> None:
        name, shared = cuda_kernels.kernel_name(self.n), cuda_kernels.shared_bytes(self.n)
        blocks = self.module.blocks_per_multiprocessor(name, SignFormat.THREADS, shared)
        device = self.codes.device
        # the kernel lists a code c if 2 popc(c & q) - popc(c) + 256 > threshold: its agreement is at least the least
        thresholds = device.torch.full((len(self.images) * self.n,), 2**30, **_int32(device))
        thresholds[: self.q] = self.least_agreement - 1 + self.query_ones - BITS // 2
        grid = blocks * device.torch.cuda.get_device_properties(device.name).multi_processor_count
        for i, image in enumerate(self.images):
            part = slice(i * self.n, i * self.n + self.n)
            arguments = (
                self.codes.words, first_tile, last_tile, image, thresholds[part], self.counts[part],
                self.ids[part], CODE_LIST_SIZE,
            )  # fmt: skip
            self.module.launch(name, grid, SignFormat.THREADS, shared, arguments)

    def measure(self) -> ListedCodes:
        """Compare the listed codes with their queries."""
        from kway.rows.gpu.code_kernels import measure_codes

        device = self.codes.device
        agree = device.torch.full((self.q, CODE_LIST_SIZE), -1, **_int32(device))
        products = device.torch.full((self.q, CODE_LIST_SIZE), -float("inf"), device=device.name)
        measure_codes[(self.q, CODE_LIST_SIZE // 128)](
            self.codes.words, self.words, self.queries, self.ids, self.counts, agree, products, self.codes.rows,
            CODE_LIST_SIZE, 128,
        )  # fmt: skip
        return ListedCodes(agree, products)


def device_sign_words(values: Tensor) -> Tensor:
    """Return the signs of (n, 512) numbers as (n, 16) int32, one bit per number."""
    return pack_bits(values > 0)


def pack_bits(bits: Tensor) -> Tensor:
    """Return bits (n, D) as (n, D / 32) int32."""
    torch = load_torch()
    words = bits.view(len(bits), -1, 32).long() << torch.arange(32, device=bits.device)
    return words.sum(2).to(torch.int32)


def unpack_codes(words: Tensor, bits: int, kind: object) -> Tensor:
    """Unpack words (m, B D / 32), stored plane by plane, into odd integers (m, D): +-1 for codes of one bit."""
    torch, m = load_torch(), len(words)
    if words.is_cuda and find_spec("triton") is not None:
        out = torch.empty((m, 32 * words.shape[1] // bits), dtype=kind, device=words.device)
        unpack_by_kernel(words, out, bits)
        return out
    shifts = torch.arange(32, device=words.device, dtype=words.dtype)
    planes = ((words.view(m, bits, -1, 1) >> shifts) & 1).flatten(2) * 2 - 1  # (m, B, D)
    y = planes[:, 0]
    for b in range(1, bits):
        y = y * 2 + planes[:, b]
    return y.to(kind)


def unpack_by_kernel(words: Tensor, out: Tensor, bits: int) -> None:
    """Unpack words into `out` (m, D) by a kernel, in one pass."""
    from kway.rows.gpu.code_kernels import unpack_planes

    m, width = out.shape
    with Device(str(out.device)).selected():
        unpack_planes[(-(-m // CODE_TILE), width // 32)](words.contiguous(), out, m, width // 32, bits, CODE_TILE)


def _images(device: Device, words: Tensor, n: int) -> Tensor:
    """Return the shared-memory operand (parts, n * 32) int32 of n queries per part: permuted, 16-byte units swizzled.

    The second half of each line is not multiplied; it repeats the first.
    """
    torch = device.torch
    padded = torch.nn.functional.pad(words, (0, 0, 0, -len(words) % n)).view(-1, n * CODE_WORDS)
    return padded[:, _places(device, n)]


@lru_cache(maxsize=8)
def _places(device: Device, n: int) -> Tensor:
    """Return which word of n queries belongs at each place (n * 32,) of the operand."""
    row, unit, word = np.ix_(range(n), range(8), range(4))
    words = np.array(cuda_kernels.WORD_PLACES)[(4 * (unit ^ (row % 8)) + word) % CODE_WORDS]
    return device.put((row * CODE_WORDS + words).reshape(-1))


def _tied(products: Tensor, best: Tensor) -> Tensor:
    """Return whether (q,) a code outside the answer has the k-th product too; lists are not sorted by position."""
    return (products == best[:, -1:]).sum(1) > (best == best[:, -1:]).sum(1)


def _sign(values: Tensor) -> Tensor:
    return (values > 0).float() * 2 - 1


def _int32(device: Device) -> dict[str, object]:
    return {"dtype": device.torch.int32, "device": device.name}


class SignLists(NamedTuple):
    """Rows that agree with queries in most bits."""

    ids: Tensor  # (q, c)
    real: Tensor  # (q, c) bool: False for padding
    products: Tensor  # (q, c) sums of q_j times the sign of bit j
    listed_within: Tensor  # (q,) every row that differs in at most so many bits is listed; -1 if the list overflowed


@dataclass(frozen=True)
class SignFilter:
    """Codes of 512 signs, z normal deviations, and the lengths of the shortest and the longest row."""

    signs: SignCodes
    z: float
    shortest: float
    longest: float

    @staticmethod
    def is_worthwhile(device: Device, bits: int, wide: int, rows: int) -> bool:
        """Return whether the device filters such codes faster than it multiplies them."""
        fits = bits == 1 and wide == BITS and rows > BLOCK_CODES
        return fits and device.is_gpu and cuda_kernels.can_compile(device.name)

    def lists(self, rotated: Tensor) -> SignLists:
        """Return the rows that agree most with queries (q, 512) float32."""
        torch = self.signs.device.torch
        with self.signs.device.selected():
            lists = CodeLists(self.signs, rotated, MIN_KEPT)
            lists.fill()
            agree, products = lists.measure()
        real = agree >= 0  # padding is not measured
        listed_within = (BITS - lists.least_agreement).where(lists.counts <= agree.shape[1], -1)
        return SignLists(torch.where(real, lists.ids.long(), 0), real, products, listed_within)

    def covers(self, keys: Tensor, norms: Tensor, squared: bool, listed_within: Tensor) -> Tensor:
        """Return whether (q,) no row outside the lists can have a key <= keys (q,), for queries of these norms (q,).

        Rows that differ in at most `listed_within` (q,) bits are listed.
        """
        if squared:  # l^2 / 2 - l |q| cos <= key; the smallest cosine is at l^2 = -2 key
            length = (-2.0 * keys).clamp(min=0.0).sqrt().clamp(self.shortest, self.longest)
            product, scale = 0.5 * length.square() - keys, length * norms
        else:
            length = keys.new_full(keys.shape, self.shortest).where(keys >= 0, self.longest)
            product, scale = -keys, length * norms
        cosine = (product / scale.where(scale > 0, 1.0)).where(scale > 0, -1.0).clamp(-1.0, 1.0)
        p = cosine.arccos() / pi
        allowed = BITS * p + self.z * (BITS * p * (1.0 - p)).sqrt() + 0.5
        return keys.isfinite() & (allowed < listed_within + 1)
