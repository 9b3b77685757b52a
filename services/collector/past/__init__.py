"""The pool's history: how machines and submitters stood, coarser the longer ago (KEEP_POOL_HISTORY)."""
