"""Fair share under virtual time: what the manual's users see of their priorities, from the product's own functions.

python -m bench.fairshare                 a table of all scenarios
python -m bench.fairshare --plot DIR      the plots of docs/fair-share.md, as SVG
python -m bench.fairshare --json FILE     the figures, for machines
"""
