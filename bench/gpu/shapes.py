"""Models that the GPU comparison trains, as in bench/shapes.h: published configurations, and a small one to try."""
# vocabulary, hidden, inner, layers, heads, KV heads, head_dim, tied
SHAPES = {
    "qwen3-0.6b": (151936, 1024, 3072, 28, 16, 8, 128, True),
    "qwen3-1.7b": (151936, 2048, 6144, 28, 16, 8, 128, True),
    "qwen3-8b": (151936, 4096, 12288, 36, 32, 8, 128, False),
    "small": (32000, 512, 1536, 8, 8, 4, 64, True),
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
