"""Linear models that answer on a GPU: arrays in, arrays out; tensors in, tensors out, without a way through the host.

device="cuda"   answers where it was fitted, here where there is no GPU (any more)
device="auto"   there where a block of rows takes long enough here
tensors         where they are, whatever the device of the model: labels, scores and probabilities are tensors too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway.base.classifier import Classifier, states_probabilities
from kway.compute.gpu.device import Device, is_tensor, labels_there
from kway.data import gate
from kway.linear.losses import Loss
from kway.parameters import checked_k
from kway.search.index import TopK

if TYPE_CHECKING:
    from kway.compute.gpu.linear.class_answers import ClassAnswers

_KEPT = 1 << 26  # bytes of weights from which their copy on a device is kept: fewer are sent faster than rows scored
_COPIES: WeakKeyDictionary[Any, tuple[NDArray, ClassAnswers]] = WeakKeyDictionary()


class AnswersOnDevice(Classifier):
    """A linear classifier, which also takes tensors, and answers on a device where it has one."""

    coef_: NDArray
    intercept_: NDArray
    temperature: float
    device: str

    def _form(self) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} has no _form")

    def _answers_there(self) -> bool:
        """Whether its answers are class rows and nothing else."""
        return True

    # ---- arrays

    def _there(self, rows: Any) -> ClassAnswers | None:
        """The answers of a device to a block of rows; None: they are found here."""
        if self.device == "cpu" or sp.issparse(rows) or not self._answers_there():
            return None
        from kway.linear.placing import answering  # the plan, and every place a problem may live in

        device = answering(self.device, rows.shape[0], self.coef_)
        return None if device is None else self._answers(device)

    def _answers(self, device: Device) -> ClassAnswers:
        from kway.compute.gpu.linear.best_classes import DeviceClasses
        from kway.compute.gpu.linear.class_answers import ClassAnswers

        held = _COPIES.get(self)
        form = self._form()
        if held is not None and held[0] is self.coef_ and held[1].device == device:
            return ClassAnswers(held[1].classes, form.joint, self.temperature)
        found = ClassAnswers(DeviceClasses.on(device, self.coef_, self.intercept_), form.joint, self.temperature)
        if self.coef_.nbytes >= _KEPT:
            _COPIES[self] = (self.coef_, found)
        return found

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        there = self._there(rows)
        if there is None:
            return self._best_here(rows, k, stated)
        codes, scores = there.best(there.device.put(rows[:]), k, stated and self._form().probabilities)
        return TopK(there.device.fetch(codes), there.device.fetch(scores))

    def _best_here(self, rows: Any, k: int, stated: bool) -> TopK:
        raise NotImplementedError(f"{type(self).__name__} has no _best_here")

    # ---- tensors

    def _tensor(self, X: Any) -> tuple[ClassAnswers, Any] | None:
        """The answers where X is, and X checked; None where X is no tensor."""
        if not is_tensor(X) or not self._answers_there():
            return None
        from kway.compute.gpu.linear.class_answers import on_its_device

        check_is_fitted(self)
        gate.check_tensor(self, X)
        return self._answers(Device(str(X.device))), on_its_device(X)

    def predict(self, X: Any) -> Any:
        """Labels (n,); a tensor where X is one and labels are numbers."""
        there = self._tensor(X)
        if there is None:
            return super().predict(X)
        answers, rows = there
        return labels_there(answers.best(rows, 1, stated=False).codes[:, 0], self.classes_)

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row and their scores (probabilities where there are any), best first."""
        there = self._tensor(X)
        if there is None:
            return super().predict_topk(X, k)
        answers, rows = there
        codes, scores = answers.best(rows, checked_k(k, len(self.classes_)), self._form().probabilities)
        return TopK(labels_there(codes, self.classes_), scores)

    def decision_function(self, X: Any) -> Any:
        """Scores (n, K); of two classes, the second's less the first's (n,)."""
        there = self._tensor(X)
        if there is None:
            return super().decision_function(X)
        answers, rows = there
        scores = answers.scores(rows)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @available_if(states_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, K)."""
        there = self._tensor(X)
        if there is None:
            return super().predict_proba(X)
        answers, rows = there
        return answers.probabilities(rows)
