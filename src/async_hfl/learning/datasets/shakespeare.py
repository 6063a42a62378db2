"""Shakespeare: prediction of the next character after eighty; each speaking role is an owner (LEAF; Project Gutenberg's
text of 1994).

A role's speeches are one text; a sample is a window of 80 characters and the character after it. The first four fifths
of a role's windows, in the order of the play, are for training. As in LEAF, testing starts with the first window that
shares no character with them, so a role with few words has no test samples.

The default is 143 roles, the number in the Async-HFL and FedProx papers. Their selection is not published. Here roles
are taken at even steps from all roles sorted by length, so that large and small parts are represented in proportion.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files.catalogue import SHAKESPEARE
from async_hfl.learning.datasets.files.parsed_cache import Arrays, load_arrays
from async_hfl.learning.datasets.files.sources import Sources
from async_hfl.learning.datasets.samples import Dataset, Samples
from async_hfl.learning.datasets.shakespeare_roles import speeches

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 symbols. Any other character is read as a blank."""
WINDOW = 80
ROLES = 143
TRAIN_SHARE = 0.8
_VERSION = "text1"
_FILE = SHAKESPEARE.files[0].name
_LEAST_WINDOWS = 2

Numbers = npt.NDArray[np.int64]


def load_shakespeare(folder: Path | None = None, *, roles: int | None = ROLES) -> Dataset:
    """Read the data set with this many roles (None: all). `folder` names a text of your own in the same layout."""
    arrays = load_arrays(SHAKESPEARE, _parse, version=_VERSION, folder=folder)
    lengths = arrays["lengths"].astype(np.int64)
    chosen = _chosen(lengths, roles)
    firsts = (np.cumsum(lengths) - lengths)[chosen]
    lengths = lengths[chosen]
    series = np.concatenate(
        [arrays["symbols"][first : first + length] for first, length in zip(firsts, lengths, strict=True)]
    )
    offsets = np.cumsum(lengths) - lengths
    windows = lengths - WINDOW
    training = np.maximum(1, (TRAIN_SHARE * windows).astype(np.int64))
    # A sample covers WINDOW + 1 characters; the last one is its target.
    train_starts, owner = _ranges(offsets, offsets + training)
    test_starts, test_owner = _ranges(np.minimum(offsets + training + WINDOW, offsets + windows), offsets + windows)
    names = arrays["roles"]
    return Dataset(
        SHAKESPEARE.name,
        _samples(series, train_starts),
        _samples(series, test_starts),
        len(ALPHABET),
        tuple(ALPHABET),
        owner=owner,
        test_owner=test_owner,
        owner_names=tuple(str(names[role]) for role in chosen),
    )


def _samples(series: npt.NDArray[np.uint8], starts: Numbers) -> Samples:
    return Samples(series, series[starts + WINDOW].astype(np.int32), starts.astype(np.int32), WINDOW)


def _chosen(lengths: Numbers, roles: int | None) -> Numbers:
    """Return roles at even steps from those sorted by length, in the order of the text."""
    long_enough = np.flatnonzero(lengths >= WINDOW + _LEAST_WINDOWS)
    wanted = len(long_enough) if roles is None else roles
    if not 1 <= wanted <= len(long_enough):
        raise DataError(f"shakespeare: {wanted} roles were asked for; 1 to {len(long_enough)} are possible")
    by_length = long_enough[np.argsort(lengths[long_enough], kind="stable")]
    places = (2 * np.arange(wanted) + 1) * len(by_length) // (2 * wanted)
    return np.sort(by_length[places])


def _ranges(firsts: Numbers, lasts: Numbers) -> tuple[Numbers, npt.NDArray[np.int32]]:
    """Return all numbers of these ranges, one range after the other, and the index of the range of each."""
    counts = lasts - firsts
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(before - firsts, counts), owner


def _parse(sources: Sources) -> Arrays:
    text = sources.content(_FILE).decode("latin-1").replace("\r\n", "\n")
    try:
        said = speeches(text)
    except DataError as problem:
        raise DataError(f"{sources.paths[_FILE]}: {problem}") from problem
    number = np.full(256, ALPHABET.index(" "), np.uint8)
    number[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(len(ALPHABET), dtype=np.uint8)
    joined = "".join(said.values()).encode("latin-1")
    return {
        "symbols": number[np.frombuffer(joined, np.uint8)],
        "lengths": np.array([len(speech) for speech in said.values()], np.int32),
        "roles": np.array([f"{play}: {name}" for play, name in said]),
    }
