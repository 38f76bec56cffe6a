"""llama.cpp's own HTTP server out of the package xllamacpp, under llama-server's name and flags.

For machines that have no llama-server binary: `python -m workers.engines.llama_server --model FILE …`.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

BAD_USAGE: Final = 2
LOAD_FAILED: Final = 1

Apply = Callable[[Any, Any], None]


class BadFlag(Exception):
    """A flag that this server does not take, or not with that value."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: what its value is, and what it sets; a flag without `read` takes no value."""

    apply: Apply
    read: Callable[[str], Any] | None = None


def _at(path: str) -> Apply:
    *parents, last = path.split(".")

    def apply(params: Any, value: Any) -> None:
        for parent in parents:
            params = getattr(params, parent)
        setattr(params, last, value)

    return apply


def _value(path: str, read: Callable[[str], Any]) -> Flag:
    return Flag(_at(path), read)


def _switch(path: str, *, to: bool) -> Flag:
    apply = _at(path)
    return Flag(lambda params, _: apply(params, to))


def _choice(path: str, kind: str, prefix: str) -> Flag:
    """A word that is the tail of one of xllamacpp's constants: `--split-mode row` is LLAMA_SPLIT_MODE_ROW."""

    def apply(params: Any, word: str) -> None:
        names = getattr(sys.modules["xllamacpp"], kind).__members__
        name = prefix + word.upper().replace("-", "_")
        if name not in names:
            known = ", ".join(name.removeprefix(prefix).lower() for name in names)
            raise ValueError(f"one of {known}")
        _at(path)(params, names[name])

    return Flag(apply, str)


_FLASH: Final = MappingProxyType({"on": "enabled", "off": "disabled", "auto": "auto"})
_ALL_LAYERS: Final = MappingProxyType({"auto": -1, "all": -2})


def _flash_attention(params: Any, word: str) -> None:
    _choice("flash_attn_type", "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_").apply(params, _FLASH.get(word, word))


def _layers(text: str) -> int:
    return _ALL_LAYERS[text] if text in _ALL_LAYERS else int(text)


def _proportions(text: str) -> list[float]:
    return [float(part) for part in text.replace("/", ",").split(",")]


def _only_none(text: str) -> str:
    if text != "none":
        raise ValueError("none; choose GPUs by CUDA_VISIBLE_DEVICES")
    return text


def _no_devices(params: Any, _: str) -> None:
    params.n_gpu_layers = 0


def _template_file(params: Any, path: str) -> None:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - keeps the start quick
        params.chat_template = file.read()


def _timeouts(params: Any, seconds: int) -> None:
    params.timeout_read = params.timeout_write = seconds


def _flags(table: Mapping[str, Flag]) -> Mapping[str, Flag]:
    return MappingProxyType({spelling: flag for spellings, flag in table.items() for spelling in spellings.split()})


FLAGS: Final = _flags(
    {
        "-m --model": _value("model.path", str),
        "-a --alias": _value("model_alias", lambda text: set(text.split(","))),
        "--host": _value("hostnames", lambda text: [text]),
        "--port": _value("port", int),
        "--reuse-port": _switch("reuse_port", to=True),
        "-t --threads": _value("cpuparams.n_threads", int),
        "-tb --threads-batch": _value("cpuparams_batch.n_threads", int),
        "--threads-http": _value("n_threads_http", int),
        "--prio": _value("cpuparams.priority", int),
        "--poll": _value("cpuparams.poll", int),
        "-c --ctx-size": _value("n_ctx", int),
        "-n --predict --n-predict": _value("n_predict", int),
        "-b --batch-size": _value("n_batch", int),
        "-ub --ubatch-size": _value("n_ubatch", int),
        "--keep": _value("n_keep", int),
        "-np --parallel": _value("n_parallel", int),
        "-cb --cont-batching": _switch("cont_batching", to=True),
        "-nocb --no-cont-batching": _switch("cont_batching", to=False),
        "-kvu --kv-unified": _switch("kv_unified", to=True),
        "--no-kv-unified": _switch("kv_unified", to=False),
        "--swa-full": _switch("swa_full", to=True),
        "--context-shift": _switch("ctx_shift", to=True),
        "--no-context-shift": _switch("ctx_shift", to=False),
        "-fa --flash-attn": Flag(_flash_attention, str),
        "-ctk --cache-type-k": _choice("cache_type_k", "ggml_type", "GGML_TYPE_"),
        "-ctv --cache-type-v": _choice("cache_type_v", "ggml_type", "GGML_TYPE_"),
        "-cram --cache-ram": _value("cache_ram_mib", int),
        "--cache-prompt": _switch("cache_prompt", to=True),
        "--no-cache-prompt": _switch("cache_prompt", to=False),
        "--cache-reuse": _value("n_cache_reuse", int),
        "-sps --slot-prompt-similarity": _value("slot_prompt_similarity", float),
        "-dev --device": Flag(_no_devices, _only_none),
        "-ngl --gpu-layers --n-gpu-layers": _value("n_gpu_layers", _layers),
        "-sm --split-mode": _choice("split_mode", "llama_split_mode", "LLAMA_SPLIT_MODE_"),
        "-ts --tensor-split": _value("tensor_split", _proportions),
        "-mg --main-gpu": _value("main_gpu", int),
        "-nkvo --no-kv-offload": _switch("no_kv_offload", to=True),
        "--no-op-offload": _switch("no_op_offload", to=True),
        "--load-mode": _choice("load_mode", "llama_load_mode", "LLAMA_LOAD_MODE_"),
        "--numa": _choice("numa", "ggml_numa_strategy", "GGML_NUMA_STRATEGY_"),
        "--check-tensors": _switch("check_tensors", to=True),
        "--warmup": _switch("warmup", to=True),
        "--no-warmup": _switch("warmup", to=False),
        "--rope-scaling": _choice("rope_scaling_type", "llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
        "--rope-freq-base": _value("rope_freq_base", float),
        "--rope-freq-scale": _value("rope_freq_scale", float),
        "--yarn-orig-ctx": _value("yarn_orig_ctx", int),
        "--yarn-ext-factor": _value("yarn_ext_factor", float),
        "--yarn-attn-factor": _value("yarn_attn_factor", float),
        "--yarn-beta-slow": _value("yarn_beta_slow", float),
        "--yarn-beta-fast": _value("yarn_beta_fast", float),
        "--embedding --embeddings": _switch("embedding", to=True),
        "--pooling": _choice("pooling_type", "llama_pooling_type", "LLAMA_POOLING_TYPE_"),
        "-mm --mmproj": _value("mmproj.path", str),
        "--jinja": _switch("use_jinja", to=True),
        "--no-jinja": _switch("use_jinja", to=False),
        "--chat-template": _value("chat_template", str),
        "--chat-template-file": Flag(_template_file, str),
        "--reasoning-format": _choice("reasoning_format", "common_reasoning_format", "COMMON_REASONING_FORMAT_"),
        "-s --seed": _value("sampling.seed", int),
        "--temp --temperature": _value("sampling.temp", float),
        "--top-k": _value("sampling.top_k", int),
        "--top-p": _value("sampling.top_p", float),
        "--min-p": _value("sampling.min_p", float),
        "--repeat-penalty": _value("sampling.penalty_repeat", float),
        "--presence-penalty": _value("sampling.penalty_present", float),
        "--frequency-penalty": _value("sampling.penalty_freq", float),
        "-to --timeout": Flag(_timeouts, int),
        "--metrics": _switch("endpoint_metrics", to=True),
        "--slots": _switch("endpoint_slots", to=True),
        "--no-slots": _switch("endpoint_slots", to=False),
        "--webui --ui": _switch("ui", to=True),
        "--no-webui --no-ui": _switch("ui", to=False),
        "--offline": _switch("offline", to=True),
        "-lv --verbosity --log-verbosity": _value("verbosity", int),
        "-v --verbose": Flag(lambda params, _: _at("verbosity")(params, 99)),
    }
)


def settings_of(arguments: Sequence[str]) -> Iterator[tuple[str, Flag, Any]]:
    """Read a command line, `--flag value` or `--flag=value`; raises BadFlag for what is not in the table."""
    words = iter(arguments)
    for word in words:
        spelling, has_value, told = word.partition("=") if word.startswith("--") else (word, "", "")
        flag = FLAGS.get(spelling)
        if flag is None:
            raise BadFlag(f"error: invalid argument: {spelling}")
        if flag.read is None:
            yield spelling, flag, None
            continue
        text = told if has_value else next(words, None)
        if text is None:
            raise BadFlag(f"error: expected value for argument: {spelling}")
        yield spelling, flag, _read(spelling, flag.read, text)


def _read(spelling: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise BadFlag(f"error while handling argument {spelling}: {text!r}: {error}") from error


def parameters(arguments: Sequence[str]) -> Any:
    """Build llama.cpp's parameters from llama-server's flags; raises BadFlag."""
    import xllamacpp  # noqa: PLC0415 - a node without it must be able to import this package

    params = xllamacpp.CommonParams()
    # llama-server's defaults, where xllamacpp has others.
    params.port = 8080
    params.n_parallel = 4
    params.kv_unified = True
    for spelling, flag, value in settings_of(arguments):
        try:
            flag.apply(params, value)
        except (OSError, OverflowError, TypeError, ValueError) as error:
            raise BadFlag(f"error while handling argument {spelling}: {value!r}: {error}") from error
    if not params.model.path:
        raise BadFlag("error: --model is required")
    return params


def serve(params: Any) -> NoReturn:
    """Load and serve until SIGTERM or SIGINT, then exit with 0."""
    import xllamacpp  # noqa: PLC0415 - see above

    # While it loads, no Python code can run: only the kernel's own way of ending a process is heard.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        # llama.cpp has printed the cause.
        sys.exit(LOAD_FAILED)
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    # Any of the server's threads may be handed the signal, and only this one may act on it: the pipe wakes it.
    signal.set_wakeup_fd(tell)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    sys.stderr.write(f"llama-server (xllamacpp): listening on {server.listening_address}\n")
    os.read(told, 1)
    # A server that is taken down in order waits for its open streams; whoever ends this one has waited before.
    os._exit(0)


def version() -> str:
    """Name what serves."""
    import xllamacpp  # noqa: PLC0415 - see above

    return f"xllamacpp {xllamacpp.__version__}"


def main(arguments: Sequence[str]) -> NoReturn:
    """Be llama-server."""
    if "--version" in arguments:
        sys.stdout.write(f"{version()}\n")
        sys.exit(0)
    try:
        params = parameters(arguments)
    except BadFlag as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(BAD_USAGE)
    serve(params)


if __name__ == "__main__":
    main(sys.argv[1:])
