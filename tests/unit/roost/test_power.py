"""`roost power` wakes machines (TLS-11, PWR-05): the packet, where it goes, whose interface it is."""

import socket

import pytest

from roost.cli import power
from roost.cli.main import main
from services.startd.core.machine.detected import Interface, default_route, interface_attributes, waking_interface
from shared import wake_on_lan
from shared.classad import parse_ads
from tests.spec import spec

MAC = "52:54:00:ab:CD:ef"
BYTES = b"\xff" * 6 + bytes([0x52, 0x54, 0x00, 0xAB, 0xCD, 0xEF]) * 16


@spec("TLS-11")
@pytest.mark.parametrize("text", [MAC, MAC.replace(":", "-"), MAC.replace(":", "")])
def test_the_packet_has_the_address_sixteen_times(text):
    assert wake_on_lan.packet(text) == BYTES
    assert len(BYTES) == 102


@pytest.mark.parametrize(
    "text", ["", "52:54:00:ab:cd", "52:54-00:ab:cd:ef", "52:54:00:ab:cd:eg", MAC + ":00", MAC + "\n"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(wake_on_lan.CanNotWake, match="no hardware address"):
        wake_on_lan.packet(text)


@pytest.mark.parametrize(
    ("subnet", "address", "where"),
    [
        ("", "", "255.255.255.255"),
        ("255.255.255.0", "10.1.2.3", "10.1.2.255"),
        ("255.255.240.0", "10.1.18.3", "10.1.31.255"),
        ("255.255.255.0", "", "255.255.255.255"),
        ("255.255.255.255", "10.1.2.3", "255.255.255.255"),
        ("10.1.2.0/24", "", "10.1.2.255"),
        ("10.1.2.77/28", "", "10.1.2.79"),
        ("10.1.2.255", "10.9.9.9", "10.1.2.255"),
        ("0.0.0.0", "", "0.0.0.0"),
    ],
)
def test_the_packet_goes_to_the_whole_subnet(subnet, address, where):
    assert wake_on_lan.target(subnet, address) == where


@pytest.mark.parametrize("subnet", ["10.1.2", "10.1.2.0/40", "node1", "10.1.2.0/"])
def test_a_subnet_that_is_none_is_refused(subnet):
    with pytest.raises(wake_on_lan.CanNotWake, match="want a mask"):
        wake_on_lan.target(subnet)


@pytest.fixture
def listener():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(30)
        yield there


@spec("TLS-11")
def test_a_packet_arrives(listener, capsys):
    assert main(["power", "-m", MAC, "-s", "127.0.0.1", "-p", str(listener.getsockname()[1])]) == 0
    assert listener.recv(1000) == BYTES
    assert capsys.readouterr().out.startswith("Packet sent to the interface")


AD = f"""Name = "slot1@node1"
Machine = "node1"
HardwareAddress = "{MAC}"
SubnetMask = "255.255.255.0"
Offline = true
"""


@spec("TLS-11")
def test_the_ad_of_a_machine_says_where_it_is(listener, tmp_path, capsys):
    """As condor_power reads it, once a machine however many slots it has."""
    file = tmp_path / "ads"
    file.write_text(AD + "\n" + AD.replace("slot1", "slot2"))
    port = str(listener.getsockname()[1])
    assert main(["power", "-ads", str(file), "-s", "127.0.0.1", "-p", port]) == 0
    assert listener.recv(1000) == BYTES
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(1000)
    assert capsys.readouterr().out == "Packet sent to node1.\n"


def test_a_sleeping_machine_is_found_in_the_pool(listener, monkeypatch, capsys):
    asked = []

    class Fake:
        def __init__(self, address):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def ads(self, *types, constraint, projection):
            asked.append((types, constraint))
            return iter(parse_ads(AD))

    monkeypatch.setattr(power, "Client", Fake)
    port = str(listener.getsockname()[1])
    assert main(["power", "NODE1", "-s", "127.0.0.1", "-p", port]) == 0
    assert listener.recv(1000) == BYTES
    assert asked == [(("Machine",), '(Machine == "NODE1" || Name == "NODE1")')]
    assert main(["power", "node1", "node2", "-s", "127.0.0.1", "-p", port]) == 1
    assert "no machine node2" in capsys.readouterr().err
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(1000)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("power", "which machine"),
        ("power -m 1:2", "no hardware address"),
        ("power -m 525400abcdef node1", "leave names"),
        ("power -m 525400abcdef -p 70000", "from 1 to 65535"),
        ("power -ads /no/such", "/no/such"),
    ],
)
def test_what_can_not_be_sent_is_told(typed, says, capsys):
    assert main(typed.split()) == 1
    assert says in capsys.readouterr().err


def test_an_ad_without_an_interface_is_told(tmp_path, capsys):
    file = tmp_path / "ad"
    file.write_text('Machine = "node7"\n')
    assert main(["power", "-ads", str(file)]) == 1
    assert "node7 has no HardwareAddress" in capsys.readouterr().err


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
"""


@spec("TLS-11")
def test_the_startd_tells_the_interface_of_the_default_route():
    lo = Interface("lo", "00:00:00:00:00:00", "127.0.0.1", "255.0.0.0")
    bare = Interface("eth0", "52:54:00:00:00:01")
    eth1 = Interface("eth1", "52:54:00:00:00:02", "192.168.1.5", "255.255.255.0")
    wlan = Interface("wlan0", "52:54:00:00:00:03", "192.168.2.5", "255.255.255.0")
    assert default_route(ROUTES) == "eth1"
    assert default_route("") == default_route("Iface\nbad line\n") == ""
    assert waking_interface([lo, bare, wlan, eth1], "eth1") is eth1
    assert waking_interface([lo, bare, wlan, eth1], "eth0") is wlan
    assert waking_interface([lo, bare], "lo") is None
    assert interface_attributes(None) == {}
    assert interface_attributes(eth1) == {
        "HardwareAddress": "52:54:00:00:00:02",
        "SubnetMask": "255.255.255.0",
        "PublicNetworkIpAddr": "192.168.1.5",
    }
