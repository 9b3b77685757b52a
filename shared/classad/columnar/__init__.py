"""The columnar gear: conditions and ranks over tables of ads with NumPy.

`Table` holds the ads, `Matching` evaluates over them with a cache of conjuncts, `compile_columnar` is for one
expression. `column` says what a column is, `vector` has the rules of the language on columns, `shapes` brings policies
that differ in constants together.
"""

from __future__ import annotations

from shared.classad.columnar.frame import Frame
from shared.classad.columnar.matching import ColumnarExpr, Matching, compile_columnar
from shared.classad.columnar.meter import Meter
from shared.classad.columnar.probe import Probe
from shared.classad.columnar.table import Queued, Table
from shared.classad.columnar.terms import OTHER_SIDE, ROW_SIDE, Conjunct

__all__ = [
    "OTHER_SIDE",
    "ROW_SIDE",
    "ColumnarExpr",
    "Conjunct",
    "Frame",
    "Matching",
    "Meter",
    "Probe",
    "Queued",
    "Table",
    "compile_columnar",
]
