"""What goes to Ganglia: packets as its own gmetric sends them, and to hosts that it watches only."""

import socket

import pytest

from services.monitor.core.gmond import (
    BadChannel,
    Channel,
    as_text,
    channels_of_gmond_conf,
    channels_of_list,
    description_packet,
    heartbeat_packets,
    hosts_of,
    is_known,
    value_packet,
)
from services.monitor.core.metrics import Metric
from services.monitor.ganglia import Ganglia, gmetric_options
from shared.daemon.main import loop_runner
from tests.daemons import make_context
from tests.spec import spec

HOST = "10.0.0.5:ap1.example.org"


def metric(**more):
    return Metric(
        **{
            "name": "JobsRunning", "value": 42, "type": "int32", "machine": "ap1.example.org", "ip": "10.0.0.5",
            "group": "Schedd", "title": "Running jobs", "desc": "Number of running jobs", "units": "jobs",
            "cluster": "Pool", "derivative": False, "lifetime": 86400, "my_type": "Scheduler",
        } | more
    )  # fmt: skip


#: What `gmetric` of Ganglia 3.7.2 sent for the same metrics.
RECORDED = (
    (
        metric(),
        "000000800000001831302e302e302e353a6170312e6578616d706c652e6f72670000000b4a6f627352756e6e696e670000000001000000"
        "05696e7433320000000000000b4a6f627352756e6e696e6700000000046a6f6273000000030000007800015180000000050000000a5350"
        "4f4f465f484f535400000000001831302e302e302e353a6170312e6578616d706c652e6f726700000007434c5553544552000000000450"
        "6f6f6c0000000547524f55500000000000000653636865646400000000000444455343000000164e756d626572206f662072756e6e696e"
        "67206a6f62730000000000055449544c450000000000000c52756e6e696e67206a6f6273",
        "000000850000001831302e302e302e353a6170312e6578616d706c652e6f72670000000b4a6f627352756e6e696e670000000001000000"
        "02257300000000000234320000",
    ),
    (
        metric(name="Up", value=1.5, type="double", title="Up", group="G", desc="", units="", cluster="",
               derivative=True),
        "000000800000001831302e302e302e353a6170312e6578616d706c652e6f726700000002557000000000000100000006646f75626c6500"
        "00000000025570000000000000000000050000007800015180000000030000000a53504f4f465f484f535400000000001831302e302e30"
        "2e353a6170312e6578616d706c652e6f72670000000547524f55500000000000000147000000000000055449544c450000000000000255"
        "700000",
        "000000850000001831302e302e302e353a6170312e6578616d706c652e6f7267000000025570000000000001000000022573000000000003"
        "312e3500",
    ),
)  # fmt: skip
HEARTBEAT = [
    "000000800000001831302e302e302e353a6170312e6578616d706c652e6f726700000009686561727462656174000000000000010000"
    "000675696e74333200000000000968656172746265617400000000000000000000000000000000000000000000020000000a53504f4f"
    "465f484f535400000000001831302e302e302e353a6170312e6578616d706c652e6f72670000000f53504f4f465f4845415254424541"
    "54000000000379657300",
    "000000850000001831302e302e302e353a6170312e6578616d706c652e6f726700000009686561727462656174000000000000010000"
    "0002257300000000000130000000",
]


@pytest.mark.parametrize(("one", "described", "valued"), RECORDED)
def test_packets_are_those_of_gmetric(one, described, valued):
    assert description_packet(one, HOST, 120).hex() == described
    assert value_packet(one, HOST).hex() == valued


def test_heartbeats_are_those_of_gmetric():
    assert [packet.hex() for packet in heartbeat_packets(HOST)] == HEARTBEAT


def test_nothing_that_users_name_spoils_the_xml_that_gmond_makes():
    """gmond puts texts into its XML as they are."""
    sent = description_packet(metric(name='Jobs_<b>&"x"\0\n', title="t" * 5000, desc="ä" * 1000), HOST, 120)
    assert b"Jobs_&lt;b&gt;&amp;&quot;x&quot;  " in sent
    assert len(sent) < 1472


def test_packets_leave_on_the_loop_that_daemons_have():
    """Processes run on uvloop, which lacks some calls of sockets. A name that no host has is its own address."""

    async def send(port):
        ganglia = Ganglia(make_context("GANGLIAD"))
        metrics = [metric(), metric(machine="no such host.." + "x" * 80, ip="")]
        await ganglia.send(metrics, [Channel("127.0.0.1", port)], "", 60, all_hosts=True)
        return ganglia.sent

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gmond:
        gmond.bind(("127.0.0.1", 0))
        assert loop_runner()(send(gmond.getsockname()[1])) == 8  # two heartbeats, two descriptions and values
        assert b"SPOOF_HEARTBEAT" in gmond.recv(9000)


def test_strings_are_no_curves():
    sent = description_packet(metric(value="up", type="string"), HOST, 120)
    assert sent[:4] == b"\0\0\0\x80"
    assert b"string" in sent
    assert as_text(metric(value="up", type="string")) == "up"
    assert "--slope=zero" in gmetric_options(metric(value="up", type="string"), HOST, 120)


def test_gmetric_is_told_the_same():
    found = gmetric_options(metric(), HOST, 120)
    for option in ("--name=JobsRunning", "--value=42", "--type=int32", "--dmax=86400", f"--spoof={HOST}"):
        assert option in found


@spec("MON-14")
def test_hosts_that_ganglia_does_not_watch_are_known_by_gstat():
    """One daemon of several on a host belongs to that host."""
    hosts = hosts_of("ap1.example.org:8\nEP1:16\n\n# comment\n")
    assert hosts == {"ap1.example.org", "ep1"}
    assert is_known(metric(), hosts)
    assert is_known(metric(machine="second@AP1.example.org"), hosts)
    assert not is_known(metric(machine="ap2.example.org"), hosts)


def test_channels_of_gmond_conf():
    text = """/* udp_send_channel { host = no } */
    udp_send_channel { mcast_join = 239.2.11.71   # all
      port = 8650
      ttl = 2 }
    udp_recv_channel { port = 8649 }
    udp_send_channel {
      host = "mon.example.org"
    }"""
    assert channels_of_gmond_conf(text, "f") == [Channel("239.2.11.71", 8650, 2), Channel("mon.example.org", 8649)]
    for bad in ("udp_send_channel { port = 1 }", "udp_send_channel { host = a\n port = 70000 }"):
        with pytest.raises(BadChannel, match="f: "):
            channels_of_gmond_conf(bad, "f")


def test_channels_by_name():
    assert channels_of_list(["a", "b:1", "[fd00::1]:2"], "K") == [Channel("a"), Channel("b", 1), Channel("fd00::1", 2)]
    for bad in ("a:b", "a:99999", "[x", ":1"):
        with pytest.raises(BadChannel, match="K: "):
            channels_of_list([bad], "K")
