"""What test_client.py sends to run as jobs."""


def add(a, b=1):
    return {"sum": a + b}


def refuse(number):
    raise ValueError(f"not {number}")


def unspeakable():
    return object()
