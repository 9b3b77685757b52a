"""The relays of the fault suite carry what they should, late or not at all."""

import random
import socket
import threading

import pytest

from bench.faults.network import DELAY_S, HEARS, SPEAKS, Networks, lateness_s


@pytest.fixture
def echo():
    """A server that sends back whatever it hears; its address and what it heard."""
    heard, came = [], threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(100):
                    heard.append(data)
                    came.set()
                    connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname(), heard, came
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def silent(client):
    client.settimeout(0.2)
    try:
        client.recv(100)
    except TimeoutError:
        return True
    finally:
        client.settimeout(60)
    return False


def test_a_machine_is_cut_off_in_one_direction_and_hears_all_of_it_afterwards(echo):
    server, heard, came = echo
    with (
        Networks(["m"], [server]) as networks,
        socket.create_connection(("127.0.0.1", networks.ports["m"][0]), 60) as client,
    ):
        client.sendall(b"1")
        assert client.recv(100) == b"1"
        came.clear()
        with networks.cut("m", HEARS):
            client.sendall(b"2")
            assert came.wait(60)
            assert silent(client)
        assert client.recv(100) == b"2"
        with networks.cut("m", SPEAKS):
            client.sendall(b"3")
            assert silent(client)
            assert heard == [b"1", b"2"]
        assert client.recv(100) == b"3"


def test_other_machines_are_left_alone_and_a_bad_network_carries_everything(echo):
    server, _, _ = echo
    with Networks(["m", "other"], [server]) as networks, networks.bad("m"):
        for machine in ("other", "m"):
            with socket.create_connection(("127.0.0.1", networks.ports[machine][0]), 60) as client:
                client.sendall(b"1")
                assert client.recv(100) == b"1"


def test_thirty_percent_are_lost_and_come_with_a_retransmission():
    chance = random.Random(7)
    late = [lateness_s(chance) for _ in range(10_000)]
    assert min(late) == DELAY_S
    lost = sum(one > DELAY_S for one in late)
    assert 2_800 < lost < 3_200
    assert {round(one - DELAY_S, 3) for one in late} >= {0.0, 0.4, 1.2}
