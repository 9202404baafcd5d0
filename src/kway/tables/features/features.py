"""Features: a table or a matrix -> numbers X (n, d), learned from training rows only.

    number, true/false    missing values filled by the median and flagged; mean 0, standard deviation 1
    date                  year, month, day, weekday and hour as numbers, if they vary
    category              one column of 0 and 1 per level; rare levels share a column
    text                  tf-idf of words and pieces of words, or embeddings (`embed`)
    vector                a list of numbers per row: not changed, or scaled as a matrix
    matrix, images        not changed if all columns have one scale, else standardized; or edges and patches of images

Constant columns, empty columns and ids are dropped. The result is dense float32, or CSR if that is much smaller.

With form="columns", for trees, nothing is scaled and missing values stay NaN. A category is one column of codes, the
most frequent level first. The result is dense float64.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.features.columns import MOST_LEVELS, LevelCodes
from kway.tables.features.embedder import (
    AnyEmbedder,
    FunctionEmbedder,
    Identity,
    check_same,
    open_embedder,
    reopen,
)
from kway.tables.features.numbers import default_names
from kway.tables.features.parts import (
    ColumnRecord,
    EmbeddedPart,
    LearnedFeatures,
    embed_words,
    learn_image_shapes,
    learn_matrix,
    learn_table,
    part_from_facts,
    part_to_facts,
)
from kway.tables.features.shapes import can_have_shapes, likely_form
from kway.tables.labeled_rows import RowRequirements
from kway.tables.sources.frames import as_table, is_table, refuse_unknown_column
from kway.tables.sources.images import ImageForm
from kway.tables.sources.values import ConvertedTable, EarlierRows, convert
from kway.validation import hosted

FORMS = ("scaled", "columns")
_SPARSE_BELOW = 0.1  # share of nonzero values below which CSR is smaller and faster than dense rows (T11: text)


class Features(TransformerMixin, BaseEstimator):
    """Turn tables and matrices into numbers for a classifier.

    Numbers are standardized, categories become columns of 0 and 1, text becomes tf-idf or embeddings, and dates become
    their parts. Numbers and dates may be in everyday notation (1.234,5 €; 31.12.2024). Later rows are read in the same
    way as the training rows.

    Parameters
    ----------
    kinds : dict of str to str, optional
        Kinds of columns that override the detected ones, such as {"zip": "category", "note": "drop"}.
    scale : {"auto", "none", "standard"}, default="auto"
        Scaling of matrices and vectors. "auto" does not change images and embeddings and standardizes other columns.
    embed : str, path or callable, optional
        Turns text columns or images into embeddings: the name or folder of a sentence-transformers model, or a function
        of a list of texts (for a matrix, of its rows).
    image : tuple (height, width, channels), optional
        Form of the images in the rows of a matrix.
    shapes : bool, default=False
        Whether to use edges and patches of images instead of their pixels.
    written : dict of str to str, optional
        Decimal mark or date format per column, such as {"price": ",", "day": "%d.%m.%Y"}. If it is given, no other
        text column is converted to numbers or dates. By default the formats are detected.
    form : {"scaled", "columns"}, default="scaled"
        "scaled" standardizes numbers and makes a column of 0 and 1 per level. "columns" makes one column per column of
        the table, for `TreesClassifier`: numbers as they are, codes of levels, parts of dates, NaN for missing values.
        Free text is left out.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of the input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a table.
    n_features_out_ : int
        Number of columns of the result.
    sparse_ : bool
        Whether the result is a CSR matrix.
    categorical_ : list of int
        Columns of the result that are codes of categories (form="columns").
    written_ : dict of str to str
        Decimal mark or date format of the converted columns.
    records_ : list of ColumnRecord
        What was done with each column; `explain` returns it as dicts.

    Examples
    --------
    >>> import kway
    >>> features = kway.Features()
    >>> features.fit_transform({"size": [1.0, 2.0, 4.0, 3.0], "color": ["red", "blue", "red", "blue"]}).shape
    (4, 3)
    >>> [record["kind"] for record in features.explain()]
    ['number', 'category']
    """

    def __init__(
        self,
        kinds: Any = None,
        scale: str = "auto",
        embed: Any = None,
        image: Any = None,
        shapes: bool = False,
        written: Any = None,
        form: str = "scaled",
    ) -> None:
        self.kinds = kinds
        self.scale = scale
        self.embed = embed
        self.image = image
        self.shapes = shapes
        self.written = written
        self.form = form

    # ---- learning

    def fit(self, X: Any, y: Any = None) -> Features:
        """Learn from training rows.

        Parameters
        ----------
        X : table or array of shape (n, d)
            A pyarrow Table, a pandas or polars frame, a dict of columns, a list of dicts, or a dense or sparse matrix.
        y : ignored
            Accepted for the scikit-learn API.

        Returns
        -------
        Features
            This object.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn from training rows and return them as numbers.

        Parameters
        ----------
        X : table or array of shape (n, d)
            The training rows.
        y : ignored
            Accepted for the scikit-learn API.

        Returns
        -------
        ndarray or csr_matrix of shape (n, n_features_out_)
        """
        for name in ("feature_names_in_", "embed_"):
            self.__dict__.pop(name, None)
        if self.form not in FORMS:
            raise InputError(f"form must be {listing(map(repr, FORMS))}, got {self.form!r:.60}")
        self._embedder = None if self.embed is None else open_embedder(self.embed)
        learned = self._learn_table(X) if is_table(X) else self._learn_matrix(X)
        self.parts_, self.records_ = learned.parts, learned.records
        if self._embedder is not None:
            self.embed_ = self._embedder.identity
        self.n_features_out_ = sum(block.shape[1] for block in learned.blocks)
        self.sparse_ = _should_be_sparse(learned.blocks) if self.is_table_ else sp.issparse(learned.blocks[0])
        return self._join(learned.blocks)

    def _learn_table(self, X: Any) -> LearnedFeatures:
        table = as_table(X)
        if table.num_rows == 0 or table.num_columns == 0:
            raise InputError(
                f"the table has {table.num_rows} rows and {table.num_columns} columns; give at least one of each"
            )
        for column in dict(self.kinds or {}):
            refuse_unknown_column(column, table.column_names, "the table", error=InputError)
        self.is_table_ = True
        table = self._learn_formats(table)
        learned = learn_table(table, dict(self.kinds or {}), self._scale(), self._embedder)
        self.feature_names_in_ = np.array(table.column_names, dtype=object)
        self.n_features_in_ = table.num_columns
        self.words_ = learned.words
        return learned

    def _learn_formats(self, table: Any) -> Any:
        """Convert text that is numbers or dates, and store the formats for later rows (`_convert_as_in_fit`)."""
        kinds = dict(self.kinds or {})
        if self.written is None:
            converted = convert(table, types=kinds)
            self.written_ = {form.column: form.how for form in converted.written}
        else:
            self.written_ = {str(c): str(how) for c, how in dict(self.written).items()}
            keep_as_text = [c for c in table.column_names if c not in self.written_ and c not in kinds]
            converted = convert(table, ".", EarlierRows(self.written_), kinds, keep_as_text)
        return _warn_of_strays(converted)

    def _learn_matrix(self, X: Any) -> LearnedFeatures:
        rows = _number_matrix(X)
        self.is_table_, self.words_, self.written_ = False, (), {}
        self.n_features_in_ = rows.shape[1]
        if self.shapes:
            return self._learn_shapes(rows)
        return learn_matrix(self._embedded(rows), self._scale(), self._image_form(), self._embedder)

    def _scale(self) -> str | None:
        """Return the scaling of numbers and matrices; None for trees, which need none (form="columns")."""
        return None if self.form == "columns" else self.scale

    def _learn_shapes(self, rows: Any) -> LearnedFeatures:
        form = self._image_form()
        if form is None or self._embedder is not None or not can_have_shapes(rows, form):
            raise InputError(
                f"shapes=True needs images of 8 x 8 pixels or more without missing values, their form image=(height, "
                f"width, channels) and no embed; got image={self.image!r}"
            )
        return learn_image_shapes(rows, form)

    # ---- rows to numbers

    def transform(self, X: Any) -> Any:
        """Return rows as numbers.

        Parameters
        ----------
        X : table or array of shape (n, d)
            Rows with the columns of the training rows.

        Returns
        -------
        ndarray or csr_matrix of shape (n, n_features_out_)
            float32; a matrix that is not scaled keeps its dtype.
        """
        check_is_fitted(self, "parts_")
        if not self.is_table_:
            rows = self._embedded(self._checked(X))
            part = self.parts_[0] if self.parts_ else None
            return rows if part is None else part.apply(rows)
        table = self._convert_as_in_fit(X)
        return self._join([self._apply(part, table) for part in self.parts_])

    def _apply(self, part: Any, table: Any) -> Any:
        if isinstance(part, EmbeddedPart):
            return embed_words(table.column(part.column), self._open(), part.width)
        return part.apply(table)

    def _join(self, blocks: list[Any]) -> Any:
        if len(blocks) == 1 and sp.issparse(blocks[0]) == self.sparse_:
            return blocks[0]
        if self.sparse_:
            return sp.csr_matrix(sp.hstack(blocks, format="csr", dtype=np.float32))
        dense = [block.toarray() if sp.issparse(block) else block for block in blocks]
        return np.hstack(dense) if len(dense) > 1 else dense[0]

    def _checked(self, X: Any) -> Any:
        if is_table(X):
            raise InputError("fit was given a matrix without column names, and this is a table; pass a matrix")
        rows = _number_matrix(X)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but Features is expecting {self.n_features_in_} features as input; "
                "pass the columns used in fit"
            )
        return rows.toarray() if sp.issparse(rows) and not self.sparse_ else rows

    def _convert_as_in_fit(self, X: Any) -> Any:
        """Return later rows as a table whose text is converted by the formats of fit."""
        table = as_table(X) if is_table(X) else self._as_the_table_of_fit(X)
        names = table.column_names  # Arrow builds this list on every access
        for column in (r.column for r in self.records_ if r.used):
            refuse_unknown_column(column, names, "the table", "feature", InputError)
        earlier = self._training_columns()
        keep_as_text = [c for c in table.column_names if c not in earlier.formats and c not in earlier.kinds]
        return _warn_of_strays(convert(table, None, earlier, keep_as_text=keep_as_text))

    def _training_columns(self) -> EarlierRows:
        """Return the formats and kinds of the training columns."""
        kinds = {r.column: r.kind for r in self.records_ if r.used and r.kind in ("number", "date", "true/false")}
        return EarlierRows(dict(self.written_), kinds, tuple(self.kinds or ()))

    def _as_the_table_of_fit(self, X: Any) -> Any:
        """Return a matrix as a table with the columns of fit, which must all be numeric."""
        names = [str(name) for name in self.feature_names_in_]
        instead = f"pass a table with columns {listing(names)}"
        not_numeric = [r for r in self.records_ if r.used and r.kind not in ("number", "true/false")]
        if not_numeric or sp.issparse(X) or not hasattr(X, "ndim"):
            why = f" with the {not_numeric[0].kind} column {not_numeric[0].column!r}" if not_numeric else ""
            raise InputError(f"fit was given a table{why}, and this is a {type(X).__name__}; {instead}")
        matrix = _number_matrix(X)
        if matrix.shape[1] != len(names):
            raise InputError(
                f"fit was given a table of {len(names)} columns, and this matrix has {matrix.shape[1]}; {instead}, "
                "or a matrix of these columns"
            )
        return pa.table({name: matrix[:, j] for j, name in enumerate(names)})

    # ---- embeddings

    def use_embed(self, embed: Any) -> Features:
        """Set the embedder of a loaded model.

        Parameters
        ----------
        embed : str, path or callable
            The function that was used in fit, or the new folder of the same embedding model.

        Returns
        -------
        Features
            This object.
        """
        check_is_fitted(self, "parts_")
        if getattr(self, "embed_", None) is None:
            raise InputError("this model was trained without embed; pass the rows without embedding them")
        self._embedder = check_same(open_embedder(embed, self.embed_), self.embed_)
        return self

    def _open(self) -> AnyEmbedder:
        if getattr(self, "_embedder", None) is None:
            self._embedder = reopen(self.embed_)
        assert self._embedder is not None
        return self._embedder

    def _embedded(self, rows: Any) -> Any:
        """Embed the rows of a matrix, as images if their form is known."""
        if self._embedder is None and getattr(self, "embed_", None) is None:
            return rows
        embedder, form = self._open(), self._image_form()
        pictures = form is not None and not sp.issparse(rows)
        if form is not None and pictures:
            shape = (form.height, form.width) if form.channels == 1 else tuple(form)
            rows = rows.reshape(-1, *shape)
        if isinstance(embedder, FunctionEmbedder):
            return embedder(rows)
        if not pictures:
            raise InputError(
                f"embed={embedder.identity.name!r} embeds text columns and images, and these rows are a matrix; "
                "give a function"
            )
        return embedder.embed_images(rows)

    def _image_form(self) -> ImageForm | None:
        return None if self.image is None else ImageForm(*self.image)

    # ---- descriptions

    @property
    def categorical_(self) -> list[int]:
        """Columns of the result that are codes of categories."""
        check_is_fitted(self, "parts_")
        columns, width = list[int](), 0
        for part in self.parts_:
            if isinstance(part, LevelCodes) and part.is_category:
                columns.append(width)
            width += len(part.output_names)
        return columns

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """Return the names of the columns of the result.

        Parameters
        ----------
        input_features : ignored
            Accepted for the scikit-learn API.

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
        """
        check_is_fitted(self, "parts_")
        if not self.parts_:
            return np.array(default_names(self.n_features_out_), dtype=object)
        return np.array([name for part in self.parts_ for name in part.output_names], dtype=object)

    def column_sources(self) -> NDArray[np.int64]:
        """Return the column of the input that each column of the result is made of.

        Returns
        -------
        ndarray of int of shape (n_features_out_,)
        """
        check_is_fitted(self, "parts_")
        if self.is_table_:
            position = {name: j for j, name in enumerate(self.feature_names_in_)}
            return np.array([position[name] for part in self.parts_ for name in part.columns], np.int64)
        if getattr(self, "embed_", None) is not None or self.shapes:
            raise InputError("columns of embeddings and shapes are made of all columns, and belong to none of them")
        return self.parts_[0].sources if self.parts_ else np.arange(self.n_features_in_)

    def explain(self) -> list[dict[str, Any]]:
        """Return what was done with each column.

        Returns
        -------
        list of dict
            One dict per column: column, kind, done (a description), missing (share of rows), levels (their number, for
            a category) and used.
        """
        check_is_fitted(self, "parts_")
        return [record.as_dict() for record in self.records_]

    def requirements(self, text_labels: bool = False) -> RowRequirements:
        """Return what rows must have for `transform`.

        Parameters
        ----------
        text_labels : bool, default=False
            Whether labels are text even if all of them look like numbers.

        Returns
        -------
        RowRequirements
            The argument `requirements` of `kway.tables.reading.read_rows`.
        """
        check_is_fitted(self, "parts_")
        columns = tuple(dict.fromkeys(r.column for r in self.records_ if r.used)) if self.is_table_ else None
        return RowRequirements(
            columns, self.words_, self._image_form(), self.n_features_in_, text_labels, self._training_columns()
        )

    def without(self, *kinds: str) -> Features | None:
        """Return unfitted Features without the columns of these kinds.

        Distances between rows weigh all columns equally, so neighbors may be better without a text column.

        Parameters
        ----------
        *kinds : str
            Kinds to leave out, such as "text".

        Returns
        -------
        Features or None
            None if no column would be left, or none left out.
        """
        check_is_fitted(self, "parts_")
        dropped = [r.column for r in self.records_ if r.used and r.kind in kinds]
        remaining = [r.column for r in self.records_ if r.used and r.kind not in kinds]
        if not dropped or not remaining:
            return None
        all_kinds = {**dict(self.kinds or {}), **dict.fromkeys(dropped, "drop")}
        embed = None if "text" in kinds else self.embed
        return self._unfitted_copy(kinds=all_kinds, embed=embed, written=self.written_)

    def with_shapes(self, X: Any) -> Features | None:
        """Return unfitted Features that use shapes instead of pixels.

        Parameters
        ----------
        X : array of shape (n, d)
            The training rows.

        Returns
        -------
        Features or None
            None if the rows are not images, or too small.
        """
        check_is_fitted(self, "parts_")
        if self.is_table_ or self.shapes or self.embed is not None:
            return None
        form = self._image_form() or likely_form(X)
        return self._unfitted_copy(image=form, shapes=True) if can_have_shapes(X, form) else None

    def _unfitted_copy(self, **params: Any) -> Features:
        """Return unfitted Features with some other parameters; unlike `clone`, it does not copy an embedder."""
        return Features(**{**self.get_params(deep=False), **params})

    # ---- model files

    def _stored_params(self) -> dict[str, Any]:
        """Return the parameters for a model file: a function is left out, a path becomes text."""
        embed = None if callable(self.embed) or self.embed is None else str(self.embed)
        image = None if self.image is None else tuple(int(v) for v in self.image)
        written = None if self.written is None else dict(self.written)
        return {**self.get_params(deep=False), "embed": embed, "image": image, "written": written}

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return facts and arrays for a model file."""
        arrays: dict[str, NDArray] = {}
        identity = getattr(self, "embed_", None)
        facts = {
            "parts": [part_to_facts(part, str(i), arrays) for i, part in enumerate(self.parts_)],
            "records": [record.as_dict() for record in self.records_],
            "columns": list(map(str, self.feature_names_in_)) if self.is_table_ else None,
            "words": list(self.words_),
            "written": dict(self.written_),
            "n_in": self.n_features_in_,
            "n_out": self.n_features_out_,
            "sparse": self.sparse_,
            "embed": None if identity is None else [identity.kind, identity.name, identity.revision],
        }
        return facts, arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        """Reverse `_fitted`."""
        self.parts_ = [part_from_facts(part, str(i), arrays) for i, part in enumerate(facts["parts"])]
        self.records_ = [ColumnRecord(**record) for record in facts["records"]]
        self.is_table_ = facts["columns"] is not None
        if self.is_table_:
            self.feature_names_in_ = np.array(facts["columns"], dtype=object)
        self.words_, self.written_ = tuple(facts["words"]), dict(facts["written"])
        self.n_features_in_, self.n_features_out_ = int(facts["n_in"]), int(facts["n_out"])
        self.sparse_ = bool(facts["sparse"])
        self._embedder = None
        if facts["embed"] is not None:
            self.embed_ = Identity(*facts["embed"])


def _warn_of_strays(converted: ConvertedTable) -> Any:
    """Return the table; warn of words that count as missing."""
    for note in converted.strays:
        warnings.warn(note, stacklevel=2)
    return converted.table


def _number_matrix(X: Any) -> Any:
    """Return X as an array (n, d) of numbers or CSR; the classifier checks the values."""
    X = hosted(X)
    try:
        array = X if sp.issparse(X) else np.asarray(X)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"X must be a table, or numbers of shape (rows, features): {error}") from error
    if array.ndim > 2 and len(array):
        array = array.reshape(len(array), -1)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or 0 in array.shape:
        raise InputError(
            f"X must be a table, or numbers of shape (rows, features); got dtype {array.dtype} and shape {array.shape}"
        )
    if sp.issparse(array):
        return sp.csr_matrix(array)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _should_be_sparse(blocks: list[Any]) -> bool:
    if not any(sp.issparse(block) for block in blocks):
        return False
    n, width = blocks[0].shape[0], sum(block.shape[1] for block in blocks)
    filled = sum(block.nnz if sp.issparse(block) else block.size for block in blocks)
    return bool(width >= MOST_LEVELS and filled < _SPARSE_BELOW * n * width)
