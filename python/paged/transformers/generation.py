# SPDX-License-Identifier: Apache-2.0
"""generate() of any model on a pool: where transformers would make a DynamicCache, it gets a PagedCache."""
from __future__ import annotations

import functools
import logging
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, StoppingCriteria, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.utils import GenerationMixin

import paged
from paged.transformers.cache import PagedCache
from paged.transformers.connection import Connection, Unavailable
from paged.transformers.geometry import model_geometry, model_window
from paged.transformers.identity import model_name, model_salt, note_loaded
from paged.transformers.switch import Switched
from paged.transformers.trial import CACHE, trial

__all__ = ["disable", "enable"]

logger = logging.getLogger(__name__)

# Names of transformers that its documentation does not have; each stands here only.
_PREPARE_CACHE = "_prepare_cache_for_generation"
_SAMPLE, _BEAM_SEARCH, _ASSISTED = "_sample", "_beam_search", "_assisted_decoding"

# The others run code of the Hub.
_MODES = {GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE, GenerationMode.BEAM_SEARCH, GenerationMode.BEAM_SAMPLE,
          GenerationMode.ASSISTED_GENERATION}
# Arguments of a model that leave the K and V of a token a function of the tokens up to it.
_PLAIN_ARGUMENTS = {"attention_mask", "logits_to_keep", CACHE, "position_ids", "return_dict", "use_cache",
                    "output_attentions", "output_hidden_states"}
# Model types whose token_type_ids say the same as mm_token_type_ids.  In other models, 0 stands for a type, too.
_TYPES_OF_MODALITIES = {"gemma3"}


def enable(pool: paged.Pool | str | None = None, *, runtime_dir: str | None = None, salt: bytes | None = None,
           reserve_ahead: int = 64) -> None:
    """Let generate() of all models of this process keep K and V in the pages of a pool.

    pool
        An open paged.Pool, or the name of one; None: $PAGED_POOL, else the only one that fits the model.  A pool whose
        setting "model" names another model than the one that generates is not used.
    runtime_dir
        The daemon's; None: $PAGED_RUNTIME_DIR, else the library's default.
    salt
        That of all prefixes, from paged.salt(), for a program with one model and no adapters; None: made for each model
        from its weights.
    reserve_ahead
        As PagedCache has it.

    Call it before the models are loaded: those that were loaded before do not share prefixes with other engines in a
    pool with the setting "model".

    The first generate() connects.  Where no pool can be used, transformers' own cache is, and a warning gives the
    reason once.  A second enable() replaces the settings of the first.
    """
    disable()
    _Hooks.installed = _Hooks(Connection(pool, runtime_dir), salt, reserve_ahead)


def disable() -> None:
    """Undo enable().  Caches that are in use keep working."""
    if _Hooks.installed is not None:
        _Hooks.installed.remove()
        _Hooks.installed = None


class _Hooks:
    """The methods of GenerationMixin that enable() replaces."""

    installed: _Hooks | None = None

    def __init__(self, connection: Connection, salt: bytes | None, reserve_ahead: int) -> None:
        self._connection = connection
        self._salt = salt
        self._reserve_ahead = reserve_ahead
        # The last warning about each class of models.
        self._warnings: dict[str, str] = {}
        self._originals = {name: getattr(GenerationMixin, name)
                           for name in (_PREPARE_CACHE, _SAMPLE, _BEAM_SEARCH, _ASSISTED)}
        setattr(GenerationMixin, _PREPARE_CACHE, self._prepare(self._originals[_PREPARE_CACHE]))
        for name in (_SAMPLE, _BEAM_SEARCH, _ASSISTED):
            setattr(GenerationMixin, name, _decode(self._originals[name], name == _ASSISTED))
        self._load = PreTrainedModel.__dict__["from_pretrained"]
        setattr(PreTrainedModel, "from_pretrained", classmethod(_loading(self._load.__func__)))

    def remove(self) -> None:
        for name, original in self._originals.items():
            setattr(GenerationMixin, name, original)
        setattr(PreTrainedModel, "from_pretrained", self._load)
        self._connection.close()

    def _prepare(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def prepare(model: Any, generation_config: Any, model_kwargs: dict[str, Any], generation_mode: Any,
                    batch_size: int, max_cache_length: int) -> Any:
            cache = None
            if _wants_dynamic_cache(model, generation_config, model_kwargs, generation_mode):
                # Assisted decoding crops the cache by numbers that are not known yet.
                assisted = generation_mode == GenerationMode.ASSISTED_GENERATION
                cache = self._make_cache(model, max_cache_length, None if assisted else model_window(model.config))
            if cache is None:
                return original(model, generation_config, model_kwargs, generation_mode, batch_size, max_cache_length)
            model_kwargs[CACHE] = cache
            return None

        return prepare

    def _make_cache(self, model: Any, max_cache_length: int, window: int | None) -> PagedCache | None:
        if model_geometry(model.config) is None:
            logger.info("%s: its K and V fit no pool", type(model).__name__)
            return None
        try:
            self._connection.open()
            tried = trial(model)
            if tried.geometry is None or tried.refusal is not None:
                raise Unavailable(str(tried.refusal))
            # With a salt of its own, the program answers for the weights.
            name = model_name(model) if self._salt is None else None
            pool = self._connection.pool(tried.geometry, model.device, model.dtype, name)
            if max_cache_length > pool.max_length:
                raise Unavailable(f"pool {pool.name} has max-length = {pool.max_length}, "
                                  f"this generate() may need {max_cache_length} tokens")
        except Unavailable as reason:
            self._warn(type(model).__name__, str(reason))
            return None
        self._warnings.pop(type(model).__name__, None)
        salt = self._salt or model_salt(pool, model)
        cache = PagedCache(pool, salt=salt, reserve_ahead=self._reserve_ahead, dense=tried.dense, window=window)
        _Run.of[cache] = _Run(cache, None if tried.dense else model)
        return cache

    def _warn(self, model: str, reason: str) -> None:
        if self._warnings.get(model) != reason:
            self._warnings[model] = reason
            warnings.warn(f"{model}: transformers' own cache is used: {reason}", RuntimeWarning, stacklevel=2)


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_pretrained(cls: type, *args: Any, **arguments: Any) -> Any:
        loaded = original(cls, *args, **arguments)
        # With output_loading_info=True, a model and a dict.
        note_loaded(loaded[0] if isinstance(loaded, tuple) else loaded)
        return loaded

    return from_pretrained


def _wants_dynamic_cache(model: Any, generation_config: Any, model_kwargs: dict[str, Any], mode: Any) -> bool:
    """Return whether transformers would make a DynamicCache that a PagedCache can stand for."""
    return (model_kwargs.get(CACHE) is None and model_kwargs.get("cache_params") is None
            and generation_config.use_cache is not False
            and generation_config.cache_implementation is None
            and not generation_config.is_assistant
            and not generation_config.output_attentions
            and not model.config.is_encoder_decoder
            # PEFT's prompt learning replaces it, and puts virtual tokens before the prompt.
            and "prepare_inputs_for_generation" not in vars(model)
            and mode in _MODES
            and bool(model._supports_default_dynamic_cache()))


class _Run:
    """One call of generate() with a PagedCache of this file."""

    of: weakref.WeakKeyDictionary[PagedCache, _Run] = weakref.WeakKeyDictionary()

    def __init__(self, cache: PagedCache, model: Any) -> None:
        """Let the model use the attention "paged" for as long as the cache is used; None: it does without."""
        if model is not None:
            cache.hold = Switched(model)

    def end(self, cache: PagedCache, returned: bool) -> None:
        """Give the pages back; a cache that is returned to the caller keeps them until it is collected."""
        del self.of[cache]
        if returned:
            return
        cache.close()
        cache.hold = None


def _decode(original: Callable[..., Any], assisted: bool) -> Callable[..., Any]:
    """Return a decoding loop that starts on published prefixes, publishes its tokens, and gives the pages back."""
    @functools.wraps(original)
    def decode(model: Any, input_ids: torch.Tensor, *args: Any, **arguments: Any) -> Any:
        cache: Any = arguments.get(CACHE)
        run = _Run.of.get(cache) if isinstance(cache, PagedCache) else None
        if run is None:
            with Switched.suspended(model) if _returns_weights(cache, arguments) else nullcontext():
                return original(model, input_ids, *args, **arguments)
        result = None
        try:
            with _explained(cache, input_ids):
                _drop_text_types(model, arguments)
                if _is_plain(input_ids, arguments):
                    _share(cache, input_ids, arguments, assisted)
                result = original(model, input_ids, *args, **arguments)
        finally:
            run.end(cache, getattr(result, CACHE, None) is cache)
        return result

    return decode


def _returns_weights(cache: Any, arguments: dict[str, Any]) -> bool:
    """Return whether a decoding loop needs an attention that returns weights, as "paged" does not, and can have it."""
    settings = arguments.get("generation_config")
    needs_pages = isinstance(cache, PagedCache) and not cache.dense
    return settings is not None and bool(settings.output_attentions) and not needs_pages


def _share(cache: PagedCache, input_ids: torch.Tensor, arguments: dict[str, Any], assisted: bool) -> None:
    """Start on published prefixes, and add to the arguments of a decoding loop what publishes its tokens."""
    mask = arguments.get("attention_mask")
    publisher = _Publisher(cache, mask)
    if assisted:
        # The first pass takes all tokens of the prompt, whatever the cache has.  Processors of logits see tokens that
        # are rejected later.
        criteria = arguments["stopping_criteria"]
        arguments["stopping_criteria"] = StoppingCriteriaList([*criteria, _PublishAccepted(publisher)])
        return
    settings = arguments["generation_config"]
    # Hidden states are returned for all tokens; and before 5.23, transformers prefills in chunks from the first token.
    if not settings.output_hidden_states and settings.prefill_chunk_size is None:
        cache.start(input_ids, mask)
    # A stopping criterion sees the rows of the next step, and those of beam search are not yet the cache's.
    processors = arguments["logits_processor"]
    arguments["logits_processor"] = LogitsProcessorList([*processors, _PublishComputed(publisher)])


def _is_plain(input_ids: torch.Tensor, arguments: dict[str, Any]) -> bool:
    """Return whether the tokens alone decide K and V, so that prefixes can be shared."""
    loop = {"logits_processor", "stopping_criteria", "generation_config", "synced_gpus", "streamer", "tokenizer",
            "assistant_model", "assistant_tokenizer", "inputs_tensor"}
    others = {name for name, value in arguments.items() if not _is_empty(value)} - loop - _PLAIN_ARGUMENTS
    if others or input_ids.ndim != 2 or not {"generation_config", "logits_processor", "stopping_criteria"}.issubset(
            arguments):
        return False
    positions = arguments.get("position_ids")
    if positions is None:
        return True
    mask = arguments.get("attention_mask")
    if mask is None:
        mask = torch.ones_like(input_ids)
    if mask.shape != input_ids.shape or positions.shape[-1] != input_ids.shape[1]:
        return False
    usual = mask.long().cumsum(-1) - 1
    return bool(((positions == usual) | (mask == 0)).all())


def _drop_text_types(model: Any, arguments: dict[str, Any]) -> None:
    """Remove arguments that say of each token whether it is of an image, where none is; processors return such."""
    names = ["mm_token_type_ids"]
    if model.config.model_type in _TYPES_OF_MODALITIES:
        names.append("token_type_ids")
    for name in names:
        value = arguments.get(name)
        if isinstance(value, torch.Tensor) and not bool(value.any()):
            del arguments[name]


def _is_empty(value: Any) -> bool:
    """Return whether an argument is no input: None, or a container of nothing else."""
    if isinstance(value, Mapping):
        return all(_is_empty(element) for element in value.values())
    return value is None or isinstance(value, (list, tuple, set)) and all(_is_empty(element) for element in value)


@contextmanager
def _explained(cache: PagedCache, input_ids: torch.Tensor) -> Iterator[None]:
    """Add to an exception of the pool what it means for this generate()."""
    pool = cache.pool
    n_rows, n_columns = input_ids.shape[:2]
    try:
        yield
    except (paged.FullError, paged.QuotaError) as error:
        error.add_note(f"generate() with {n_rows} rows of {n_columns} tokens had come to {cache.get_seq_length()} "
                       f"tokens in pool {pool.name}, of {pool.n_pages} pages of {pool.page_size} tokens. It gave its "
                       "pages back.")
        raise
    except paged.GoneError as error:
        error.add_note(f"The K and V of this generate() in pool {pool.name} are lost. The next generate() "
                       "connects again; while there is no daemon, transformers' own cache is used.")
        raise


class _Publisher:
    """Publishes the full pages of a PagedCache whenever a row has filled one.

    mask
        The attention_mask of the prompt [n_rows, n_columns]; None: all ones.
    """

    def __init__(self, cache: PagedCache, mask: torch.Tensor | None) -> None:
        self._cache = cache
        self._mask = mask
        self._n_pages = 0

    def publish(self, input_ids: torch.Tensor) -> None:
        """input_ids: the tokens [n_rows, at least cache.get_seq_length()] of all rows."""
        n_columns = self._cache.get_seq_length()
        mask = self._mask
        page_size = self._cache.pool.page_size
        if mask is None:
            n_pages = n_columns // page_size
        else:
            padding = (mask == 0).sum(-1)
            n_pages = int(((n_columns - padding) // page_size).sum())
        if n_pages == self._n_pages:
            return
        self._n_pages = n_pages
        if mask is not None and mask.shape[1] < n_columns:
            mask = torch.cat((mask, mask.new_ones(mask.shape[0], n_columns - mask.shape[1])), dim=-1)
        self._cache.publish(input_ids, mask)


class _PublishComputed(LogitsProcessor):
    """Sees the tokens whose K and V the pages have."""

    def __init__(self, publisher: _Publisher) -> None:
        self._publisher = publisher

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._publisher.publish(input_ids)
        return scores


class _PublishAccepted(StoppingCriteria):
    """Sees the accepted tokens; the pages lack the last one."""

    def __init__(self, publisher: _Publisher) -> None:
        self._publisher = publisher

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self._publisher.publish(input_ids)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)
