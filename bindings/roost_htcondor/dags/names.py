"""Names of the nodes of a layer in the DAG file, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from roost_htcondor.dags.exceptions import CannotInvertFormat, LayerNameContainsSeparator

DEFAULT_SEPARATOR: Final = ":"


class NodeNameFormatter(ABC):
    """One way of naming nodes. `parse` gives back what `generate` got, or rescue files can not be read."""

    @abstractmethod
    def generate(self, layer_name: str, node_index: int) -> str:
        """The name of a layer's node; the first one has the index 0."""

    @abstractmethod
    def parse(self, node_name: str) -> tuple[str, int]:
        """Layer and index of the node of that name."""


class SimpleFormatter(NodeNameFormatter):
    """Names like `layer:3`."""

    def __init__(self, separator: str = DEFAULT_SEPARATOR, index_format: str = "{:d}", offset: int = 0) -> None:
        """index_format: for `str.format`. offset: the number of the first node."""
        self.separator = separator
        self.index_format = index_format
        self.offset = offset

    def generate(self, layer_name: str, node_index: int) -> str:
        if self.separator in layer_name:
            raise LayerNameContainsSeparator(
                f"layer {layer_name}: {self.separator!r} stands between a layer's name and the number of a node"
            )
        name = f"{layer_name}{self.separator}{self.index_format.format(node_index + self.offset)}"
        if self.parse(name) != (layer_name, node_index):
            raise CannotInvertFormat(f"{name} is read back as node {self.parse(name)}: look at the index_format")
        return name

    def parse(self, node_name: str) -> tuple[str, int]:
        layer, separator, index = node_name.rpartition(self.separator)
        try:
            return layer, int(index) - self.offset
        except ValueError:
            raise CannotInvertFormat(
                f"{node_name} does not end with {separator or self.separator!r} and a number"
            ) from None
