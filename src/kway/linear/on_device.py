"""Linear models that answer on a GPU: arrays in, arrays out; tensors in, tensors out, without a way through the host.

device="cuda"   answers where it was fitted, here where there is no GPU (any more)
device="auto"   there where a block of rows takes long enough here
tensors         where they are, whatever the device of the model: labels, scores and probabilities are tensors too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway.base.tensors import AskedThere, TensorClassifier
from kway.compute.gpu.device import Device, is_tensor
from kway.data import gate
from kway.linear.losses import Loss
from kway.search.index import TopK

if TYPE_CHECKING:
    from kway.compute.gpu.linear.best_classes import DeviceClasses
    from kway.compute.gpu.linear.class_answers import ClassAnswers

_KEPT = 1 << 26  # bytes of weights from which their copy on a device is kept: fewer are sent faster than rows scored


class _Copy(NamedTuple):
    """Class rows on a device, and what they are a copy of."""

    coef: NDArray
    intercept: NDArray
    classes: DeviceClasses

    def still(self, model: AnswersOnDevice, device: Device) -> bool:
        """Whether it is the model's, there."""
        same = self.coef is model.coef_ and self.intercept is model.intercept_
        return same and self.classes.device == device


_COPIES: WeakKeyDictionary[Any, _Copy] = WeakKeyDictionary()


class AnswersOnDevice(TensorClassifier):
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
        if held is not None and held.still(self, device):
            classes = held.classes
        else:
            classes = DeviceClasses.on(device, self.coef_, self.intercept_)
            if self.coef_.nbytes >= _KEPT:
                _COPIES[self] = _Copy(self.coef_, self.intercept_, classes)
        form = self._form()
        return ClassAnswers(classes, form.joint, self.temperature, form.probabilities)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        there = self._there(rows)
        if there is None:
            return self._best_here(rows, k, stated)
        codes, scores = there.best(there.device.put(rows[:]), k, stated)
        return TopK(there.device.fetch(codes), there.device.fetch(scores))

    def _best_here(self, rows: Any, k: int, stated: bool) -> TopK:
        raise NotImplementedError(f"{type(self).__name__} has no _best_here")

    # ---- tensors

    def _tensor(self, X: Any) -> AskedThere | None:
        if not is_tensor(X) or not self._answers_there():
            return None
        from kway.compute.gpu.linear.class_answers import on_its_device

        check_is_fitted(self)
        gate.check_tensor(self, X)
        return AskedThere(self._answers(Device(str(X.device))), on_its_device(X))
