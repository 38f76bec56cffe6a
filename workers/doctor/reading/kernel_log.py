"""The kernel's log, asked for once in a run of the doctor."""

from workers.discovery import kernel_words as source
from workers.discovery.kernel_words import KernelWords
from workers.doctor.entry import Patient


def kernel_words(patient: Patient) -> KernelWords:
    """Return what the kernel has said since boot."""
    return patient.once("kernel words", lambda: source.read(patient.machine, patient.settings))
