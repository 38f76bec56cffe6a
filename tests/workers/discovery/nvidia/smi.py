"""What nvidia-smi prints, in the forms of several generations of drivers; all names and numbers are made up."""

from tests.fakes.machine import FakeMachine
from workers.ports import ToolResult
from workers.settings import NodeSettings

SETTINGS = NodeSettings(id="n1")


def uuid(number):
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


def mig_uuid(number):
    return f"MIG-{number:08x}-aaaa-bbbb-cccc-dddddddddddd"


def bus(number):
    return f"00000000:{number:02X}:00.0"


def fb(total, used=0, reserved=None):
    kept = "" if reserved is None else f"<reserved>{reserved} MiB</reserved>"
    return (
        f"<fb_memory_usage><total>{total} MiB</total>{kept}<used>{used} MiB</used><free>0 MiB</free></fb_memory_usage>"
    )


NO_MIG = (
    "<mig_mode><current_mig>N/A</current_mig><pending_mig>N/A</pending_mig></mig_mode><mig_devices>None</mig_devices>"
)


def a_card(number=0, *, name="NVIDIA H100 80GB HBM3", memory=None, mig=NO_MIG, more="", at=None, who=None):
    """One card as driver 535 tells it, with `more` for what others tell."""
    return f"""
  <gpu id="{at or bus(number + 1)}">
    <product_name>{name}</product_name>
    <persistence_mode>Enabled</persistence_mode>
    {mig}
    <serial>N/A</serial>
    <uuid>{who or uuid(number)}</uuid>
    <minor_number>{number}</minor_number>
    <compute_mode>Default</compute_mode>
    {memory or fb(81559, 4, 550)}
    <bar1_memory_usage><total>131072 MiB</total><used>1 MiB</used><free>131071 MiB</free></bar1_memory_usage>
    <utilization><gpu_util>3 %</gpu_util></utilization>
    <temperature><gpu_temp>36 C</gpu_temp></temperature>
    <clocks><sm_clock>1410 MHz</sm_clock></clocks>
    <max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
    <processes>
    </processes>
    {more}
  </gpu>"""


def a_log(*cards, driver="535.161.08", attached=None, end="</nvidia_smi_log>"):
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>{driver}</driver_version>
  <cuda_version>12.2</cuda_version>
  <attached_gpus>{len(cards) if attached is None else attached}</attached_gpus>
  {"".join(cards)}
{end}
"""


def listed(*cards):
    """`-L`: (number, name, profiles) each; an instance's UUID is made of its card's and its own number."""
    lines = []
    for number, name, *profiles in cards:
        lines.append(f"GPU {number}: {name} (UUID: {uuid(number)})")
        lines += [
            f"  MIG {profile:<11} Device {slot:2}: (UUID: {mig_uuid(16 * number + slot)})"
            for slot, profile in enumerate(profiles)
            if profile
        ]
    return "\n".join(lines) + "\n"


def a_machine(xml=None, listing=None, files=None, links=None, **answers):
    """A machine whose nvidia-smi answers these; by keyword further command lines, `_` for a blank and `__` for `-`."""
    tools = {} if xml is None else {"nvidia-smi -q -x": xml}
    if listing is not None:
        tools["nvidia-smi -L"] = listing
    tools |= answers.pop("tools", {})
    told = {line: said if isinstance(said, ToolResult) else ToolResult(0, said) for line, said in tools.items()}
    told.setdefault("nvidia-smi", ToolResult(2, "Invalid combination of input arguments.\n"))
    programs = {"nvidia-smi": "nvidia-smi", "lspci": "lspci"}
    return FakeMachine(programs=programs, tools=told, files=files or {}, links=links or {}, **answers)
