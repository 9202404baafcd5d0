"""Versions: some threads may use an object while another thread changes it.

A version of an object is the dictionary of its attributes. A write changes a copy of the object and then publishes it
by one assignment, so that other threads see the object as before the write or as after it, never between. A reader
works on the version that was current when it began. Writes to one object wait for each other. A write that raises an
error changes nothing.

    writes    decorator of a method that changes its object
    current   the current version, for a method that reads several attributes, which must be of one version
    branch    a copy whose attributes can be replaced without effect on the original

Two rules make this work. A method behind `writes` replaces attributes; it never changes an array, or another object
that a version holds. A method that works on `current` assigns attributes only if any order of the assignments is right,
such as statistics of the last search and parts that are computed at first use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])
Object = TypeVar("Object")

_LOCK = "_write_lock"  # attribute with the lock; added by the first write, as constructors of estimators add nothing


class WriteLock:
    """A lock that its own thread may take again; copies, pickles and forked processes get a free one."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    def __reduce__(self) -> tuple[type[WriteLock], tuple[()]]:
        return WriteLock, ()

    def __enter__(self) -> None:
        if self._process != os.getpid():  # the thread that held it was not copied by the fork
            self.__init__()  # type: ignore[misc]
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def current(held: Object) -> Object:
    """Return the current version of an object: later writes do not change it."""
    version = object.__new__(type(held))
    version.__dict__ = held.__dict__
    return version


def branch(held: Object) -> Object:
    """Return a copy of an object with the same parts; attributes of the copy can be replaced."""
    copied = object.__new__(type(held))
    copied.__dict__ = dict(held.__dict__)
    return copied


def write_lock(held: Any) -> WriteLock:
    """Return the lock of an object and of all its versions."""
    lock: WriteLock = vars(held).setdefault(_LOCK, WriteLock())
    return lock


@contextmanager
def writing(held: Object) -> Iterator[Object]:
    """Yield a copy to be changed, and publish it at the end as the next version of the object."""
    with write_lock(held):
        changed = branch(held)
        yield changed
        held.__dict__ = changed.__dict__


def writes(work: Method) -> Method:
    """Run a method on a copy of its object, and publish the copy; a method that returns its object still does."""

    @wraps(work)
    def run(held: Any, *args: Any, **kwargs: Any) -> Any:
        with writing(held) as changed:
            answer = work(changed, *args, **kwargs)
        return held if answer is changed else answer

    return cast(Method, run)
