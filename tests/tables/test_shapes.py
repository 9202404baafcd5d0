"""Edges and patches of images: against plain loops, through model files, and what they are for."""

import numpy as np
import pytest

import kway
from kway.errors import InputError, ModelFileError
from kway.pipelines import FeaturedClassifier
from kway.tables.features import shapes
from kway.tables.features.features import Features
from kway.tables.features.shapes import as_images, edges, likely_form, windows
from kway.tables.sources.images import ImageForm


def slow_histograms(images, rows, columns, bins):
    """Every inner pixel's gradient, shared among two directions and four cells."""
    n, h, w, _ = images.shape
    out = np.zeros((n, rows, columns, bins))
    for i, y, x in np.ndindex(n, h, w):
        if not (0 < y < h - 1 and 0 < x < w - 1):
            continue
        gy, gx = images[i, y + 1, x] - images[i, y - 1, x], images[i, y, x + 1] - images[i, y, x - 1]
        c = int(np.argmax(gy**2 + gx**2))
        length, turn = np.hypot(gy[c], gx[c]), np.arctan2(gy[c], gx[c]) / (2 * np.pi) * bins % bins
        for r, k in np.ndindex(rows, columns):
            far = max(0, 1 - abs((y + 0.5) * rows / h - 0.5 - r)) * max(0, 1 - abs((x + 0.5) * columns / w - 0.5 - k))
            for b in range(bins):
                apart = min(abs(turn - b), bins - abs(turn - b))
                out[i, r, k, b] += length * far * max(0, 1 - apart)
    return out


@pytest.mark.parametrize(("h", "w", "c"), [(8, 8, 1), (9, 14, 3), (12, 8, 1)])
def test_histograms_are_those_of_plain_loops(h, w, c):
    from kway.kernels.features.edges import edge_histograms

    images = np.random.default_rng(h).random((2, h, w, c), np.float32)
    found = np.zeros((2, 3, 2, 18), np.float32)
    edge_histograms(images, found)
    np.testing.assert_allclose(found, slow_histograms(images.astype(float), 3, 2, 18), atol=1e-4)


def test_an_edge_is_found_in_its_direction():
    image = np.zeros((1, 16, 16, 1), np.float32)
    image[:, :, 8:] = 1  # light to the right: direction 0
    found = edges(image).reshape(4, 4, shapes.BINS)
    assert found[:, 1:3, 0].min() > 0.1
    assert np.abs(found[..., 1:]).max() < 1e-6
    assert np.abs(edges(np.full((1, 16, 16, 1), 0.7, np.float32))).max() == 0


def test_brightness_and_contrast_change_little():
    rng = np.random.default_rng(0)
    images = rng.random((20, 16, 16, 1), np.float32)
    learned = shapes.learn_shapes((255 * images.reshape(20, -1)).astype(np.uint8), ImageForm(16, 16, 1))
    one, other = learned.raw(images.reshape(20, -1) * 255), learned.raw(images.reshape(20, -1) * 180 + 40)
    np.testing.assert_allclose(one, other, atol=0.02 * np.abs(one).max())


def test_patches_are_those_of_the_image():
    images = np.arange(2 * 12 * 10 * 3, dtype=np.float32).reshape(2, 12, 10, 3)
    found = windows(images)
    assert found.shape == (2, 4, 3, 108)
    np.testing.assert_array_equal(np.sort(found[1, 2, 1]), np.sort(images[1, 4:10, 2:8].ravel()))


def test_large_images_are_averaged_down():
    X = np.random.default_rng(0).integers(0, 256, (3, 70 * 64), np.uint8)
    images = as_images(X, (70, 64, 1), 255.0)
    assert images.shape == (3, 35, 32, 1)
    assert images[1, 4, 5, 0] == pytest.approx(X[1].reshape(70, 64)[8:10, 10:12].mean() / 255)


@pytest.mark.parametrize("form", [(8, 8, 1), (28, 28, 1), (33, 20, 3), (64, 70, 1), (8, 200, 1)])
def test_columns_are_as_many_as_said(form):
    X = np.random.default_rng(1).integers(0, 256, (12, int(np.prod(form))), np.uint8)
    learned = shapes.learn_shapes(X, ImageForm(*form))
    found = learned.apply(X)
    assert found.shape == (12, shapes.shape_columns(form, learned.filters.shape[1])) == (12, len(learned.output_names))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert learned.filters.shape[0] == shapes.patch_values(form)


@pytest.mark.parametrize("value", [0, 7, 255])
def test_images_without_any_contrast(value):
    X = np.full((9, 100), value, np.uint8)
    assert not shapes.learn_shapes(X, ImageForm(10, 10, 1)).apply(X).any()


def test_what_bytes_can_be():
    rng = np.random.default_rng(0)
    smooth = rng.integers(100, 110, (50, 16, 16, 3)) + np.array([-90, 0, 90])
    pixels, planes = smooth.reshape(50, -1), np.moveaxis(smooth, 3, 1).reshape(50, -1)
    assert likely_form(pixels.astype(np.uint8)) == ImageForm(16, 16, 3)
    assert likely_form(planes.astype(np.uint8)) is None
    assert likely_form(np.zeros((5, 784), np.uint8)) == ImageForm(28, 28, 1)
    assert likely_form(np.zeros((5, 784))) is None
    assert likely_form(np.zeros((5, 50), np.uint8)) is None


@pytest.fixture(scope="module")
def digits():
    data = kway.datasets.load("digits")
    return data.x_train[:600], data.y_train[:600], data.x_test[:300], data.y_test[:300]


def test_shapes_tell_digits_better_than_pixels(digits):
    X, y, Q, answers = digits
    right = {}
    for name, features in {"pixels": Features(), "shapes": Features(image=(28, 28, 1), shapes=True)}.items():
        numbers = features.fit_transform(X)
        model = kway.LeastSquaresClassifier(alpha=3e-3 * float(np.square(numbers).sum(axis=1).mean())).fit(numbers, y)
        right[name] = model.score(features.transform(Q), answers)
    assert right["shapes"] > right["pixels"] + 0.05


def test_round_trip(digits, tmp_path):
    X, y, Q, _ = digits
    model = FeaturedClassifier(kway.CentroidClassifier(), Features(image=(28, 28, 1), shapes=True)).fit(X, y)
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway", verify=True)
    np.testing.assert_array_equal(loaded.predict_proba(Q), model.predict_proba(Q))
    assert loaded.features_.explain() == model.features_.explain()
    assert "edges" in loaded.features_.explain()[0]["done"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("filters", (36, 3)), ("filters", (30, 200)), ("offset", (7,)), ("mean", (7,)), ("spread", (7,)), ("mean", ())],
)
def test_a_file_whose_shapes_do_not_fit_is_refused(digits, name, shape):
    from kway.modelfile import pack, unpack

    features = Features(image=(28, 28, 1), shapes=True)
    manifest, arrays = pack(
        FeaturedClassifier(kway.CentroidClassifier(), features).fit(*(part[:100] for part in digits[:2]))
    )
    with pytest.raises(ModelFileError):
        unpack(manifest, {**arrays, f"features.0.{name}": np.ones(shape, np.float32)})


@pytest.mark.parametrize("image", [None, (7, 7, 1), (28, 28, 1)])
def test_what_has_no_shapes_is_refused_in_words(image):
    X = np.full((5, 49 if image == (7, 7, 1) else 784), np.nan if image == (28, 28, 1) else 1.0)
    with pytest.raises(InputError, match="shapes=True needs images"):
        Features(image=image, shapes=True).fit(X)
