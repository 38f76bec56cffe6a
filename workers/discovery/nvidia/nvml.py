"""Asks NVML for the cards, in a child process with a deadline, since a broken driver may hang or crash whoever asks.

The child is this module, too: python -m workers.discovery.nvidia.nvml [path of libnvidia-ml]
"""

import sys
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Gpu
from workers import tools
from workers.discovery.nvidia import nvml_child
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.nvml_lines import SAYS, Begun, Done, Line, NoAnswer, Told
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

PROGRAM: Final = (sys.executable, "-m", "workers.discovery.nvidia.nvml")
UNANSWERED: Final = "NVML does not answer for it"
"""What is said of a card that the child did not come to."""


def ask(machine: Machine, settings: NodeSettings) -> Cards | Problem:
    """Return the cards, or why NVML does not tell of any."""
    library = () if settings.nvml == "auto" else (settings.nvml,)
    return parse(machine.output((*PROGRAM, *library), tools.limit("nvml", settings)))


def parse(answer: ToolResult) -> Cards | Problem:
    """Read what the child printed, as far as it came."""
    lines = _lines(answer.out)
    error = next((line for line in lines if isinstance(line, NoAnswer)), None)
    if error is not None:
        return _problem(error.code, SAYS.get(error.code, SAYS["exit"]), error.words)
    begun = next((line for line in lines if isinstance(line, Begun)), None)
    if begun is None:
        return _silence(answer)
    told = [line for line in lines if isinstance(line, Told)]
    gpus = tuple(line.gpu for line in told if line.gpu is not None)
    cards = Cards(begun.driver, gpus, tuple(bad for line in told for bad in line.problems))
    is_whole = any(isinstance(line, Done) for line in lines)
    return cards if is_whole else _broken_off(cards, len(told), answer)


def is_broken_off(cards: Cards) -> bool:
    """Tell whether the child came to its end before it had asked all cards."""
    return any(gpu.failed == UNANSWERED for gpu in cards.gpus)


def _lines(text: str) -> list[Line]:
    found: list[Line] = []
    for line in text.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Line))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue  # a library may print what it likes; what is cut off is told by the missing last line
    return found


def _silence(answer: ToolResult) -> Problem:
    said = answer.err or answer.out
    if answer.problem.startswith("held up"):
        return _problem("held-up", f"NVML is {answer.problem}: the driver hangs; a reboot may be needed", said)
    if answer.problem.startswith("no answer"):
        return _problem("timeout", f"NVML gave {answer.problem}: the driver hangs", said)
    if answer.problem:
        return _problem("not-allowed", f"NVML cannot be asked: {answer.problem}", said)
    if answer.code is not None and answer.code < 0:
        return _problem("crashed", f"NVML crashed whoever asked it (signal {-answer.code})", said)
    return _problem("garbage", f"what asked NVML ended with {answer.code} and did not tell what it should", said)


def _broken_off(cards: Cards, asked: int, answer: ToolResult) -> Cards:
    """Keep the cards that were told of, and name those that were not as such of which nothing is known."""
    attached = (cards.driver.attached if cards.driver else None) or 0
    dumb = tuple(Gpu(index=index, failed=UNANSWERED) for index in range(asked, attached))
    return Cards(cards.driver, (*cards.gpus, *dumb), (*cards.problems, _silence(answer)))


def _problem(code: str, text: str, said: str) -> Problem:
    return Problem(code=f"nvml.{code}", fact="gpus", text=text, literal=cut(said))


if __name__ == "__main__":
    sys.exit(nvml_child.main(sys.argv[1:]))
