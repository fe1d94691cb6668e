"""The structs of include/deepinfer/*.h that cross the border, as ctypes sees them. tests/python compares them with the headers."""
from __future__ import annotations

import ctypes
from ctypes import c_bool, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p

VERSION = (0, 1)  # of the headers that these are


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("line", c_int), ("file", c_char_p), ("message", c_char * 512)]


class CacheOptions(ctypes.Structure):
    _fields_ = [("ram_bytes", c_int64), ("dir", c_char_p), ("dir_bytes", c_int64), ("shared_dir", c_char_p), ("shared_bytes", c_int64),
                ("tenant_bytes", c_int64), ("ttl_s", c_int64 * 2), ("admit", c_int32), ("load", c_int)]


class EngineOptions(ctypes.Structure):
    _fields_ = [("backend", c_char_p), ("n_threads", c_int32), ("chunk_tokens", c_int32), ("max_tokens", c_int64), ("trace", c_void_p),
                ("trace_user", c_void_p), ("kv_bytes", c_int64), ("replay", c_int), ("draft", c_bool), ("cpu_isa", c_char_p),
                ("cache", CacheOptions), ("ram_budget", c_int64), ("ram_percent", c_int32), ("weight_cache", c_char_p),
                ("cpu_pin", c_char_p)]


class SchedulerOptions(ctypes.Structure):
    _fields_ = [("on_events", c_void_p), ("user", c_void_p), ("step_tokens", c_int32), ("max_running", c_int32), ("max_waiting", c_int64),
                ("ahead_tokens", c_int32), ("script", c_void_p), ("script_user", c_void_p), ("draft_tokens", c_int32),
                ("draft_auto", c_bool), ("vocabulary", c_void_p)]


class RecipeOptions(ctypes.Structure):
    _fields_ = [("thinking_off", c_bool), ("reject_missing_reasoning", c_bool), ("reject_responses_web_search", c_bool),
                ("drop_messages_web_search", c_bool), ("messages_any_forces_call", c_bool), ("max_tokens_bound", c_uint32),
                ("image_token", c_char_p), ("aliases", c_void_p), ("n_aliases", c_size_t), ("max_request_bytes", c_size_t),
                ("max_messages", c_uint32)]


class ServiceOptions(ctypes.Structure):
    _fields_ = [("engine", EngineOptions), ("scheduler", SchedulerOptions), ("recipe", RecipeOptions), ("model_name", c_char_p),
                ("n_prepare_threads", c_int32), ("max_calls", c_int64), ("max_unread_bytes", c_size_t), ("no_cache", c_bool),
                ("deepseek_exact", c_bool), ("verify", c_int)]


class CallOptions(ctypes.Structure):
    _fields_ = [("route", c_int), ("body", c_char_p), ("n", c_size_t), ("id", c_char_p), ("tenant", c_char_p), ("priority", c_int32),
                ("queue_timeout_ms", c_int64), ("timeout_ms", c_int64), ("wake", c_void_p), ("user", c_void_p), ("cache", c_char_p)]


class Usage(ctypes.Structure):
    _fields_ = [("prompt_tokens", c_int64), ("cached_tokens", c_int64), ("completion_tokens", c_int64), ("reasoning_tokens", c_int64)]


class CallInfo(ctypes.Structure):
    _fields_ = [("phase", c_int), ("http_status", c_int), ("stream", c_bool), ("unread", c_size_t), ("cancelled", c_bool),
                ("retry_after_s", c_int32), ("usage", Usage), ("error", c_int), ("finish", c_int), ("submitted_at", c_int64),
                ("queued_at", c_int64), ("admitted_at", c_int64), ("first_token_at", c_int64), ("ended_at", c_int64)]


class BatchItem(ctypes.Structure):
    _fields_ = [("route", c_int), ("body", c_char_p), ("n", c_size_t), ("http_status", c_int), ("reply", c_void_p), ("n_reply", c_size_t)]


class BatchProgress(ctypes.Structure):
    _fields_ = [("n_done", c_size_t), ("n", c_size_t), ("prompt_tokens", c_int64), ("completion_tokens", c_int64)]


class ModelInfo(ctypes.Structure):
    _fields_ = [("vocab_size", c_int32), ("hidden_size", c_int32), ("n_layers", c_int32), ("n_draft_layers", c_int32),
                ("n_vision_layers", c_int32), ("n_experts", c_int32), ("n_active_experts", c_int32), ("bos_token_id", c_int32),
                ("eos_token_id", c_int32), ("max_tokens", c_int64), ("n_tensors", c_int64), ("weight_bytes", c_int64),
                ("kv_bytes_per_token", c_int64), ("state_bytes", c_int64)]


# C name -> mirror, for the test.
MIRRORS = {
    "di_error": Error, "di_cache_options": CacheOptions, "di_engine_options": EngineOptions, "di_scheduler_options": SchedulerOptions, "di_recipe_options": RecipeOptions,
    "di_service_options": ServiceOptions, "di_call_options": CallOptions, "di_usage": Usage, "di_call_info": CallInfo,
    "di_batch_item": BatchItem, "di_batch_progress": BatchProgress, "di_model_info": ModelInfo,
}

ROUTE_CHAT = 0
ROUTE_COMPLETIONS = 4
PHASE_ENDED = 4
ENCODE_SPECIAL = 1
DECODE_SKIP_SPECIAL = 1
REPLAY = {"off": 0, "encoder": 1, "decoder": 2, "both": 3}
VERIFY = {"coupled": 0, "block": 1, "rejection": 2}
E_CANCELLED = -9

ProgressFn = ctypes.CFUNCTYPE(c_bool, c_void_p, ctypes.POINTER(BatchProgress))
