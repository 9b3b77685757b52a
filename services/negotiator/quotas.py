"""How big the quota of each group is in a pool of some size (spec rows GRP-03, GRP-06 to GRP-11). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from services.negotiator.group_tree import GroupConfig, Tree


@dataclass(frozen=True, slots=True)
class Quotas:
    """Slot weight, by `Group.index`.

    own: what the group's own submitters may use. subtree: what came from above, for it and all groups below it.
    """

    own: tuple[float, ...]
    subtree: tuple[float, ...]


def assign(tree: Tree, config: GroupConfig, pool_weight: float) -> Quotas:
    """Hand the pool down the tree.

    Static children of a group are served first. Where they ask for more than it has, they keep their quotas if
    oversubscription is allowed, and are scaled down to fit otherwise (GRP-07, GRP-08). Dynamic children have their
    parts of what is left, scaled down if the parts come to more than 1 (GRP-06, GRP-10). Nobody is ever scaled up
    (GRP-09).

    A group that has children keeps for itself what they leave of its quota. With oversubscription it keeps all of it,
    so that parent and children share one quota; the root never does, or the pool would be given away twice (GRP-11).
    Below a quota of 0 every quota is 0.
    """
    own = [0.0] * len(tree.groups)
    subtree = [0.0] * len(tree.groups)
    subtree[0] = max(0.0, pool_weight)
    for group in tree.groups:  # parents come before their children
        quota = subtree[group.index]
        if quota <= 0.0:
            continue
        children = [tree.groups[index] for index in group.children]
        fixed = sum(child.config_quota for child in children if child.static)
        parts = sum(child.config_quota for child in children if not child.static)
        scale = 1.0 if config.allow_oversubscription or fixed <= quota else quota / fixed
        remaining = max(0.0, quota - fixed * scale) / max(parts, 1.0)
        handed_down = 0.0
        for child in children:
            subtree[child.index] = child.config_quota * (scale if child.static else remaining)
            handed_down += subtree[child.index]
        shared = config.allow_oversubscription and group is not tree.root
        own[group.index] = quota if shared else max(0.0, quota - handed_down)
    return Quotas(tuple(own), tuple(subtree))
