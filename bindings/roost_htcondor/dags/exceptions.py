"""What can be wrong with a DAG."""


class DAGsException(Exception):
    """Any of these."""


class OneToOneEdgeNeedsSameNumberOfVars(DAGsException):
    """Layers that are joined one to one differ in their number of nodes."""


class IncompatibleGrouper(DAGsException):
    """Layers do not divide into as many groups each, without a rest."""


class DuplicateNodeName(DAGsException):
    """The DAG has a node of that name."""


class UnrecognizedWalkOrder(DAGsException):
    """An order that is no WalkOrder."""


class LayerNameContainsSeparator(DAGsException):
    """A layer's name has in it what stands between name and number of its nodes."""


class NoRescueFileFound(DAGsException):
    """The directory has no rescue file of that DAG."""


class CannotInvertFormat(DAGsException):
    """A node's name does not tell its layer and number."""
