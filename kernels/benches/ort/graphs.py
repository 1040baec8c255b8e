"""Writes the decoding of one token of a GPT, with a cache of keys and values, as an ONNX graph for onnxruntime-web.

Inputs: token (1) and position (1) int64, and for each layer past_k.i (1, NH, HS, P), past_v.i (1, NH, P, HS).
Outputs: logits (1, V), and for each layer k.i (1, NH, HS, P + 1), v.i (1, NH, P + 1, HS).
Weights are random. Matrices are stored as (C, OC), the layout of MatMul's constant operand in torch.onnx and ONNX
Runtime's tools, which ONNX Runtime packs on loading. wte is also stored transposed for the last layer, as exporters do.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPES = {
    "tiny": dict(n_layer=4, n_head=4, n_embd=128, vocab_size=96, block_size=256),
    "tiny-50257": dict(n_layer=4, n_head=4, n_embd=128, vocab_size=50257, block_size=256),
    "gpt2": dict(n_layer=12, n_head=12, n_embd=768, vocab_size=50257, block_size=1024),
}


class Graph:
    def __init__(self):
        self.nodes, self.constants, self.random = [], [], np.random.default_rng(1)

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name, *shape):
        return self.constant(name, (self.random.standard_normal(shape) * 0.02).astype(np.float32))

    def op(self, kind, inputs, outputs=1, **attributes):
        names = [f"{kind}.{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, name, x, c, oc):
        product = self.op("MatMul", [x, self.weight(f"{name}.weight", c, oc)])
        return self.op("Add", [product, self.weight(f"{name}.bias", oc)])

    def norm(self, name, x, c):
        weight = self.constant(f"{name}.weight", np.ones(c, np.float32))
        bias = self.constant(f"{name}.bias", np.zeros(c, np.float32))
        return self.op("LayerNormalization", [x, weight, bias], axis=-1, epsilon=1e-5)


def decode(n_layer, n_head, n_embd, vocab_size, block_size):
    g, c, hs = Graph(), n_embd, n_embd // n_head
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    inputs = [helper.make_tensor_value_info(name, i64, [1]) for name in ("token", "position")]
    outputs = [helper.make_tensor_value_info("logits", f32, [1, vocab_size])]
    wte = g.random.standard_normal((vocab_size, c)).astype(np.float32) * np.float32(0.02)
    x = g.op("Gather", [g.constant("wte", wte), "token"])
    x = g.op("Add", [x, g.op("Gather", [g.weight("wpe", block_size, c), "position"])])
    heads = g.constant("heads", np.array([1, n_head, 1, hs], np.int64))
    columns = g.constant("columns", np.array([1, n_head, hs, 1], np.int64))
    row = g.constant("row", np.array([1, c], np.int64))
    scale = g.constant("scale", np.array(1 / np.sqrt(hs), np.float32))
    half, one = g.constant("half", np.array(0.5, np.float32)), g.constant("one", np.array(1, np.float32))
    root = g.constant("root", np.array(np.sqrt(0.5), np.float32))
    for i in range(n_layer):
        ln = g.norm(f"h.{i}.ln_1", x, c)
        q, k, v = g.op("Split", [g.linear(f"h.{i}.c_attn", ln, c, 3 * c)], outputs=3, axis=1, num_outputs=3)
        q, v = (g.op("Reshape", [part, heads]) for part in (q, v))
        k = g.op("Reshape", [k, columns])
        g.nodes.append(helper.make_node("Concat", [f"past_k.{i}", k], [f"k.{i}"], axis=3))
        g.nodes.append(helper.make_node("Concat", [f"past_v.{i}", v], [f"v.{i}"], axis=2))
        att = g.op("Mul", [g.op("MatMul", [q, f"k.{i}"]), scale])
        atty = g.op("MatMul", [g.op("Softmax", [att], axis=-1), f"v.{i}"])
        x = g.op("Add", [x, g.linear(f"h.{i}.att_proj", g.op("Reshape", [atty, row]), c, c)])
        fch = g.linear(f"h.{i}.c_fc", g.norm(f"h.{i}.ln_2", x, c), c, 4 * c)
        # The exact GELU, in the form that ONNX Runtime fuses into one operator.
        cdf = g.op("Add", [g.op("Erf", [g.op("Mul", [fch, root])]), one])
        gelu = g.op("Mul", [g.op("Mul", [fch, cdf]), half])
        x = g.op("Add", [x, g.linear(f"h.{i}.fc_proj", gelu, 4 * c, c)])
        for name, past, now in (
            ("k", [1, n_head, hs, "P"], [1, n_head, hs, "N"]),
            ("v", [1, n_head, "P", hs], [1, n_head, "N", hs]),
        ):
            inputs.append(helper.make_tensor_value_info(f"past_{name}.{i}", f32, past))
            outputs.append(helper.make_tensor_value_info(f"{name}.{i}", f32, now))
    lm_head = g.constant("lm_head", np.ascontiguousarray(wte.T))
    g.nodes.append(helper.make_node("MatMul", [g.norm("ln_f", x, c), lm_head], ["logits"]))
    graph = helper.make_graph(g.nodes, "decode", inputs, outputs, g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


if __name__ == "__main__":
    folder = sys.argv[1]
    for name, shape in SHAPES.items():
        onnx.save(decode(**shape), f"{folder}/{name}.onnx")
