"""The queue as the negotiator sees it: autoclusters, requests and the reuse of claims."""
