"""Jobs that are virtual machines, under a real QEMU without KVM: guests run in software, which every machine can."""

import shutil

import pytest

from services.startd.exec.vm.plan import CONSOLE
from shared.bus.memory import MemoryBus
from shared.classad import ClassAd
from shared.messages.claims import DeactivateClaim, JobReportAck
from shared.messages.orders import UpdateMachineAd
from tests.guests import DEAF, GREETING, POLITE
from tests.integration.isolated_pool import is_root
from tests.spec import spec
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

pytestmark = [
    pytest.mark.vms,
    pytest.mark.timeout(300),
]
PATIENCE_S = 90.0


@pytest.fixture
def qemu():
    if not is_root():
        pytest.fail("virtual machines are run for root only: leave these tests out with --without vms", pytrace=False)
    found = shutil.which("qemu-system-x86_64")
    if found is None:
        pytest.fail(
            "no qemu-system-x86_64: install Debian's package qemu-system-x86 (bin/install-packages qemu-system-x86), "
            "or leave these tests out with --without vms",
            pytrace=False,
        )
    return found


@pytest.fixture
def make_pool(qemu, tmp_path):
    tmp_path.chmod(0o755)
    knobs = {"VM_TYPE": "kvm", "ROOST_VM_ACCELERATOR": "tcg", "VM_NETWORKING": "true", "NUM_SLOTS": 2, "NUM_CPUS": 2}
    return lambda **own: Pool(tmp_path, **knobs | own)


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


def ad_of(pool, slot="slot1@node1"):
    return pool.startd.shared.runs.machine_ad(slot)


async def tried(pool):
    launcher = pool.startd.shared.launchers["vm"]
    await eventually(lambda: launcher.found is not None, what="QEMU to be tried")


async def start(pool, files, image, **attrs):
    (files.input / "disk.img").write_bytes(image)
    job = {
        "JobUniverse": 13,
        "Cmd": "guest",
        "TransferExecutable": False,
        "ShouldTransferFiles": "YES",
        "JobVMType": "kvm",
        "JobVMMemory": 32,
        "JobVM_VCPUS": 1,
        "VMPARAM_vm_Disk": "disk.img:vda:w",
    }
    activation = pool.activation(url=files.url, **job | attrs)
    granted = await pool.call(pool.request(activation))
    pool.schedd.next_job = lambda report: JobReportAck(release=True)
    return activation, granted


async def end_of(pool, started):
    activation, _ = started
    return (await pool.schedd.end_of(activation.job_id, timeout=PATIENCE_S)).exit


async def stop(pool, started, why):
    activation, granted = started
    await pool.call(
        DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, how="graceful", why=why)
    )


async def says(pool, word):
    """Wait until the guest has said this."""

    def heard():
        return any(word in path.read_text() for path in pool.execute.glob(f"dir_*/{CONSOLE}"))

    await eventually(heard, what=f"the guest to say {word!r}")


@spec("VMU-01")
async def test_the_machine_says_what_it_can(make_pool):
    async with make_pool(VM_MEMORY=512, VM_MAX_NUMBER=3) as pool:
        await tried(pool)
        ad = ad_of(pool)
        assert ad.eval("HasVM") is True
        assert ad.eval("VM_Type") == "kvm"
        assert ad.eval("VM_GAHP_VERSION")[0].isdigit()
        assert (ad.eval("VM_Memory"), ad.eval("VM_AvailNum")) == (512, 3)
        assert (ad.eval("VM_Networking"), ad.eval("VM_Networking_Types")) == (True, "nat")
        assert "VMOfflineReason" not in ad


async def test_a_guest_runs_and_what_it_says_comes_back(make_pool, files):
    async with make_pool(VM_MEMORY=512, VM_MAX_NUMBER=3) as pool:
        await tried(pool)
        started = await start(pool, files, GREETING, JobVMNetworking=True)
        end = await end_of(pool, started)
        assert (end.reason, end.exit_code) == ("exited", 0), end
        assert "hello from a guest" in files.text(CONSOLE)
        assert not (files.output / ".vm.log").exists()


async def test_a_guest_outlives_its_startd_and_is_asked_to_shut_down(make_pool, files):
    async with make_pool(VM_MEMORY=512, VM_MAX_NUMBER=3) as pool:
        await tried(pool)
        started = await start(pool, files, POLITE)
        await says(pool, "up")
        await pool.restart()
        await tried(pool)
        await eventually(lambda: ad_of(pool).eval("VM_Memory") == 480, what="its memory to be taken")
        assert ad_of(pool).eval("VM_AvailNum") == 2
        await stop(pool, started, "vacate")
        end = await end_of(pool, started)
        assert (end.reason, end.exit_code) == ("evicted", 0), end


async def test_a_guest_that_does_not_hear_is_killed_when_its_time_is_over(make_pool, files):
    async with make_pool(MACHINEMAXVACATETIME=1) as pool:
        await tried(pool)
        started = await start(pool, files, DEAF)
        await says(pool, "up")
        await stop(pool, started, "remove")
        end = await end_of(pool, started)
        assert (end.reason, end.exit_signal) == ("killed", 9), end


@spec("VMU-03")
@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"VMPARAM_vm_Disk": "disk.img:vda:w:qcow2"}, "qcow2"),
        ({"VMPARAM_vm_Disk": "other.img:vda:w"}, "there is no file other.img"),
        ({"VMPARAM_vm_Disk": "disk.img"}, "is not file:device:permission"),
        ({"JobVMType": "xen"}, "this machine has kvm"),
        ({"JobVMNetworking": True, "JobVMNetworkingType": "bridge"}, "this machine offers nat"),
    ],
)
async def test_a_job_at_fault_is_held_with_the_reason(make_pool, files, attrs, words):
    async with make_pool() as pool:
        await tried(pool)
        end = await end_of(pool, await start(pool, files, GREETING, **attrs))
        assert (end.reason, end.hold_code) == ("hold", 6), end
        assert words in end.message
        assert ad_of(pool).eval("HasVM") is True


@spec("VMU-04", "VMU-06", "W-79")
async def test_a_machine_at_fault_takes_no_more_until_it_is_mended(make_pool, files, qemu, tmp_path):
    program = tmp_path / "qemu.sh"

    def write(guests):
        new = program.with_suffix(".new")
        new.write_text(f'#!/bin/sh\ncase "$*" in *" -S "*) exec {qemu} "$@" ;; esac\n{guests}\n')
        new.chmod(0o755)
        new.rename(program)

    broken = "echo 'qemu-system-x86_64: failed to initialize kvm: Permission denied' >&2; exit 1"
    write(broken)
    async with make_pool(ROOST_VM_PROGRAM=str(program)) as pool:
        await tried(pool)
        assert ad_of(pool).eval("HasVM") is True

        async def fail():
            end = await end_of(pool, await start(pool, files, GREETING))
            assert end.reason == "failed", end
            for slot in ("slot1@node1", "slot2@node1"):
                ad = ad_of(pool, slot)
                assert ad.eval("HasVM") is False
                assert "failed to initialize kvm" in ad.eval("VMOfflineReason")
                assert ad.eval("VMOfflineTime") > 1_700_000_000
                assert ad.eval("OfflineUniverses") == ["VM", 13]

        await fail()
        order = UpdateMachineAd(attributes=ClassAd({"HasVM": True}).pack())
        gateway = MemoryBus(pool.hub, sender="gateway.gw")
        await gateway.start()
        await gateway.call("startd.node1", order)
        await gateway.stop()
        assert ad_of(pool).eval("HasVM") is True
        assert "VMOfflineReason" not in ad_of(pool)
        await fail()  # it can be seen again: what was set by hand does not stand above it
        write(f'exec {qemu} "$@"')
        started = await start(pool, files, GREETING)
        assert (await end_of(pool, started)).exit_code == 0
        assert ad_of(pool).eval("HasVM") is True
        write(broken)
        await fail()
        await pool.restart()
        await tried(pool)
        assert ad_of(pool).eval("HasVM") is True
