"""Writes a trained model in the released on-disk layout: FP4 experts, FP8 dense weights with 32x32 scales, BF16/F32 rest."""
import argparse
import json
import os

import torch
from safetensors.torch import save_file

import chatfmt
import config
import vocabmap
from quant import C448, C6, e2m1, e4m3, scale_fp8_block, scale_rows

BF = torch.bfloat16


def e8m0(s):
    return ((s.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8).view(torch.float8_e8m0fnu)


def fp8_block(w):
    g, s = scale_fp8_block(w)
    return e4m3(g / s).flatten(-4, -3).flatten(-2).to(torch.float8_e4m3fn), e8m0(s[:, 0, :, 0])


def fp8_rows(w):
    g, s = scale_rows(w, C448)
    return e4m3(g / s).flatten(-2).to(torch.float8_e4m3fn), e8m0(s[..., 0])


def fp4_rows(w):
    g, s = scale_rows(w, C6)
    v = e2m1((g / s).clamp(-6, 6)).flatten(-2)
    code = torch.bucketize(v.abs(), torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])).to(torch.uint8)
    code = code | (torch.signbit(v).to(torch.uint8) << 3)
    return (code[..., 0::2] | (code[..., 1::2] << 4)).view(torch.int8), e8m0(s[..., 0])


def tensors(state, c, draft=None):
    """-> ordered {name: tensor}. state: Demo.state_dict(); draft: Draft.state_dict() or None."""
    out = {}

    def put(name, pair):
        out[name + ".weight"], out[name + ".scale"] = pair

    def block(prefix, p, l, bias, experts):
        out[prefix + "attn_norm.weight"] = p["attn_norm"][l].to(BF)
        out[prefix + "ffn_norm.weight"] = p["ffn_norm"][l].to(BF)
        for s in ("attn", "ffn"):
            for k in ("fn", "base", "scale"):
                out[f"{prefix}hc_{s}_{k}"] = p[f"hc_{s}_{k}"][l].float()
        out[prefix + "attn.attn_sink"] = p["attn_sink"][l].float()
        for k in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b"):
            put(f"{prefix}attn.{k}", fp8_block(p[k][l]))
        out[prefix + "attn.q_norm.weight"] = p["q_norm"][l].to(BF)
        out[prefix + "attn.kv_norm.weight"] = p["kv_norm"][l].to(BF)
        out[prefix + "ffn.gate.weight"] = p["gate"][l].to(BF)
        out[prefix + "ffn.gate.bias"] = bias[l].float()
        out[prefix + "ffn.gate.bias_vl"] = bias[l].float().clone()
        for e in range(experts):
            for k in ("1", "2", "3"):
                put(f"{prefix}ffn.experts.{e}.w{k}", fp4_rows(p["ew" + k][l, e]))
        for k in ("1", "2", "3"):
            put(f"{prefix}ffn.shared_experts.w{k}", fp8_block(p["sw" + k][l]))

    p = {k[2:]: v.detach().cpu() for k, v in state.items() if k.startswith("p.")}
    out["embed.weight"] = p["embed"].to(BF)
    for l in range(c.num_hidden_layers):
        pre = f"layers.{l}."
        block(pre, p, l, state["gate_bias"].cpu(), c.n_routed_experts)
        if l in c.kv_source_layer_ids:
            s = c.kv_source_layer_ids.index(l)
            out[pre + "attn.compressor.wkv.weight"] = p["c_wkv"][s].to(BF)
            if c.ratios[l] > 1:
                out[pre + "attn.compressor.wgate.weight"] = p["c_wgate"][0].to(BF)
            out[pre + "attn.compressor.norm.weight"] = p["c_norm"][s].to(BF)
            out[pre + "attn.indexer.wk.weight"] = p["iwk"][s].to(BF)
            out[pre + "attn.indexer.k_norm.weight"] = p["ik_norm"][s].to(BF)
        if l in c.index_source_layer_ids:
            s = c.index_source_layer_ids.index(l)
            put(pre + "attn.indexer.wq_b", fp8_block(p["iwq_b"][s]))
            out[pre + "attn.indexer.weights_proj.weight"] = p["iwp"][s].to(BF)
        if l in c.engram_layer_ids:
            s = c.engram_layer_ids.index(l)
            put(pre + "engram.embed", fp8_rows(p[f"e_table{s}"]))
            put(pre + "engram.wkv", fp8_block(p["e_wkv"][s]))
            out[pre + "engram.q_weight"], out[pre + "engram.k_weight"] = p["e_q"][s].to(BF), p["e_k"][s].to(BF)
    out["norm.weight"], out["head.weight"] = p["norm"].to(BF), p["head"].to(BF)
    if draft is not None:
        p = {k[2:]: v.detach().cpu() for k, v in draft.items() if k.startswith("p.")}
        for l in range(c.num_nextn_predict_layers):
            block(f"mtp.{l}.", p, l, draft["gate_bias"].cpu(), c.dspark_n_routed_experts)
        put("mtp.0.main_proj", fp8_block(p["main_proj"]))
        last = f"mtp.{c.num_nextn_predict_layers - 1}."
        out["mtp.0.main_norm.weight"], out[last + "norm.weight"] = p["main_norm"].to(BF), p["norm"].to(BF)
        out[last + "markov_head.embed.weight"] = p["markov_embed"].to(BF)
        out[last + "markov_head.head.weight"] = p["markov_head"].to(BF)
        out[last + "confidence_head.proj.weight"] = p["confidence"].to(BF)
    return {k: v.contiguous() for k, v in out.items()}


def write(state, c, folder, draft=None, limit=14_000_000):
    os.makedirs(folder, exist_ok=True)
    all_tensors = tensors(state, c, draft)
    shards, size = [{}], 0
    for k, v in all_tensors.items():
        n = v.numel() * v.element_size()
        if size + n > limit:
            shards.append({})
            size = 0
        shards[-1][k] = v
        size += n
    index, total = {}, sum(v.numel() * v.element_size() for v in all_tensors.values())
    for i, s in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(s, os.path.join(folder, name))
        index.update({k: name for k in s})
    dump(folder, "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": index})
    text = {k: getattr(c, k) for k in config.TEXT}
    if draft is None:
        text["num_nextn_predict_layers"] = 0
        text["compress_ratios"] = c.compress_ratios[:c.num_hidden_layers]
    dump(folder, "config.json", {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16", "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": 2, "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                                "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
        "text_config": text})
    dump(folder, "generation_config.json", {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "do_sample": False,
                                            "temperature": 1.0, "top_p": 1.0})
    special = {"__type": "AddedToken", "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    dump(folder, "tokenizer_config.json", {
        "add_bos_token": False, "add_eos_token": False, "bos_token": {**special, "content": chatfmt.BOS},
        "eos_token": {**special, "content": chatfmt.EOS}, "pad_token": {**special, "content": chatfmt.PAD},
        "clean_up_tokenization_spaces": False, "legacy": True, "model_max_length": c.max_position_embeddings,
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": None})
    return total, len(all_tensors), len(shards)


def dump(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=2)
        f.write("\n")


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--main", required=True, help="main.pt of train.py")
    a.add_argument("--draft", help="draft.pt of dspark.py")
    a.add_argument("--tokenizer", required=True, help="tokenizer.json")
    a.add_argument("--out", required=True, help="checkpoint folder to write")
    a = a.parse_args()
    conf = config.load(vocabmap.vocab_map(a.tokenizer))
    main = torch.load(a.main, map_location="cpu")["state"]
    print(write(main, conf, a.out, torch.load(a.draft, map_location="cpu")["state"] if a.draft else None))
