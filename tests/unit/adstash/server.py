"""A server that speaks as much of Elasticsearch's API as adstash does, and fails as it is told to."""

import json
from collections import Counter

from aiohttp import web


class Search:
    """documents: by id. plan: answers to the next requests by "METHOD /path", before it does its work: a status,
    (status, headers), or "die" (the connection is cut before the work), "deaf" (after it)."""

    def __init__(self):
        self.documents = {}
        self.index = None  # its body, once it is made
        self.mapped = []  # bodies of PUT _mapping
        self.plan = {}
        self.busy = {}  # id -> statuses that this document gets before it is taken
        self.refuse = lambda document: ""  # a reason
        self.asked = Counter()
        self.created = Counter()  # how often each id was made
        self.most = 1 << 30  # bytes of a request
        self.authorization = []
        self.gate = None  # (so many requests of _bulk go through, an event that the others wait for)

    async def __aenter__(self):
        app = web.Application(client_max_size=1 << 30)
        app.add_routes([web.route("*", "/{path:.*}", self._any)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.host = f"127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc):
        await self._runner.cleanup()

    async def _any(self, request):
        what = f"{request.method} {request.path}"
        self.asked[what] += 1
        self.authorization.append(request.headers.get("Authorization"))
        planned = self.plan.get(what)
        told = planned.pop(0) if planned else None
        if told == "die":
            request.transport.abort()
            return web.Response()
        body = await request.read()
        if self.gate is not None and request.path == "/_bulk" and self.asked[what] > self.gate[0]:
            await self.gate[1].wait()
        if isinstance(told, tuple):
            return web.json_response({"error": {"type": "planned", "reason": "x"}}, status=told[0], headers=told[1])
        if isinstance(told, int):
            return web.json_response({"error": {"type": "planned", "reason": "x"}}, status=told)
        answer = self._do(request, body)
        if told == "deaf":
            request.transport.abort()
        return answer

    def _do(self, request, body):
        if request.path == "/_bulk":
            if len(body) > self.most:
                return web.Response(status=413, text="too large")
            return web.json_response({"took": 1, "errors": True, "items": list(self._items(body))})
        if request.path.endswith("/_mapping"):
            self.mapped.append(json.loads(body))
            return web.json_response({"acknowledged": True})
        if request.method == "HEAD":
            return web.Response(status=404 if self.index is None else 200)
        if request.method == "PUT" and self.index is None:
            self.index = (request.path, json.loads(body))
            return web.json_response({"acknowledged": True})
        return web.json_response({"error": {"type": "resource_already_exists_exception"}}, status=400)

    def _items(self, body):
        assert body.endswith(b"\n")
        lines = body.splitlines()
        assert len(lines) % 2 == 0
        for action, text in zip(lines[::2], lines[1::2], strict=True):
            told, document = json.loads(action)["create"], json.loads(text)
            id_ = told["_id"]
            assert told["_index"] == "htcondor-000001"
            if self.busy.get(id_):
                status = self.busy[id_].pop(0)
                yield {"create": {"_id": id_, "status": status, "error": {"type": "busy", "reason": "full"}}}
            elif reason := self.refuse(document):
                yield {"create": {"_id": id_, "status": 400, "error": {"type": "mapper", "reason": reason}}}
            elif id_ in self.documents:
                yield {"create": {"_id": id_, "status": 409, "error": {"type": "version_conflict"}}}
            else:
                self.documents[id_] = document
                self.created[id_] += 1
                yield {"create": {"_id": id_, "status": 201}}
