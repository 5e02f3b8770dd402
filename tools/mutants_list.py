"""What tools/mutants.py breaks of models and their step: edits of (file, text that occurs once, its replacement), and which
tests of parity have to fail.

Each pattern of `found_by` needs a failing test of its own: a mutant that float32 finds and bfloat16 does not survives.
"""
DECODER, LAYER, LAYERS = "src/layers/decoder.cpp", "src/layers/residual_layer.cpp", "src/layers/layer_stack.cpp"
PASS, ROPE, NORM = "src/layers/pass_builder.cpp", "src/layers/rope.cpp", "src/layers/norm.cpp"
ATTENTION, MLP = "src/mixers/attention/attention.cpp", "src/channels/gated_mlp/gated_mlp.cpp"
EXPERTS, ROUTER = "src/channels/experts/experts.cpp", "src/channels/experts/expert_router.cpp"
LATENT = "src/mixers/latent_attention/bound_latent_attention.cpp"
DEEPSEEK = "src/models/deepseek_v3/deepseek_v3.cpp"
MIXED = ("in.sum,\n           branch(tape, mixer_norm_, through(tape, in.y, pass, mix), pass), "
         "pass.stream_rows);")
CHANNELED = "branch(tape, channel_norm_, through(tape, middle.y, pass, work), pass)};"
EAGER_ATTENTION, FAST_ATTENTION = "src/ops/attention/attention.cpp", "src/backends/onednn/attention/attention.cpp"
FAST_SCORES = "src/backends/onednn/tiles/scores.cpp"
DECODER_INPUT, MEDIA = "src/layers/decoder_input.cpp", "src/data/rows/media_positions.cpp"
OPTIMIZER, TRAINER = "src/optimizers/adamw.cpp", "src/training/trainer.cpp"


def tests(family="*", suites=("Model", "BFloat16"), kernels=("eager", "fast"), test="*"):
    return [f"*/{suite}Parity.{test}/{family}_trained_{kernel}" for suite in suites for kernel in kernels]


def placed(test, families=("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5"), kernels=("eager", "best")):
    return [f"*/PlacedRowsParity.{test}/{family}_{kernel}" for family in families for kernel in kernels]


# The golden with experts.
WITH_EXPERTS = [f"*/ModelParity.*/deepseek_v3_{kernel}" for kernel in ("eager", "fast")]
FLOAT32 = ("Model",)
STEPS = ("Trainer",)
MUTANTS = [
    # Each of these has to be found in float32 and in bfloat16, with eager and with fast kernels.
    dict(name="rotary is removed", found_by=tests(),
         edits=[(ROPE, "const float angle = static_cast<float>(p) *", "const float angle = 0 *")]),
    dict(name="the causal mask is removed", found_by=tests(),
         edits=[(EAGER_ATTENTION, "if (distance < 0 || (op.window > 0 && distance >= op.window))",
                 "if (window > 0 && distance >= window)"),
                (FAST_SCORES, "const int64_t end = std::clamp<int64_t>(last, 0, scores.columns);",
                 "const int64_t end = scores.columns;")]),
    dict(name="the norms of queries and keys are removed", found_by=tests("qwen3"),
         edits=[(ATTENTION, "if (!config.norm.exists) return;", "if (config.hidden > 0) return;")]),
    dict(name="query heads read another group's keys and values", found_by=tests(),
         edits=[(EAGER_ATTENTION, "p::reshape(tape, p::transpose(tape, q, 0, 1), {kv_heads, group * queries, dim});",
                 "p::reshape(tape, p::transpose(tape, p::reshape(tape, p::transpose(tape, q, 0, 1), "
                 "{group, kv_heads, queries, dim}), 0, 1), {kv_heads, group * queries, dim});"),
                (EAGER_ATTENTION, "p::reshape(tape, y, {heads, queries, v.shape()[2]}), 0, 1);",
                 "p::reshape(tape, p::transpose(tape, p::reshape(tape, y, {kv_heads, group, queries, v.shape()[2]}), "
                 "0, 1), {heads, queries, v.shape()[2]}), 0, 1);"),
                (FAST_ATTENTION, "columns, task.kv_head, key_copy),",
                 "columns, (task.kv_head + 1) % op.k.dim(1), key_copy),"),
                (FAST_ATTENTION, "columns, task.kv_head, value_copy);",
                 "columns, (task.kv_head + 1) % op.k.dim(1), value_copy);")]),
    dict(name="the softmax scale is removed", found_by=tests(),
         edits=[(ATTENTION, "    op.scale = scale_;\n", "    op.scale = 1.f;\n")]),
    dict(name="the MLP is removed", found_by=tests(),
         edits=[(LAYER, CHANNELED, "primitives::scale(tape, through(tape, middle.y, pass, work), 0.f)};")]),

    # The rest of a layer.
    dict(name="attention is removed", found_by=tests(),
         edits=[(LAYER, MIXED, "in.sum, Var{}, (static_cast<void>(mix), pass.stream_rows));")]),
    dict(name="the residual around attention is dropped", found_by=tests(),
         edits=[(LAYER, MIXED,
                 "branch(tape, mixer_norm_, through(tape, in.y, pass, mix), pass), {}, pass.stream_rows);")]),
    dict(name="the residual around the MLP is the norm's", found_by=tests(),
         edits=[(LAYER, "return {middle.sum, branch(", "return {middle.y, branch(")]),
    dict(name="the biases of q, k and v are dropped", found_by=tests("llama") + tests("qwen2"),
         edits=[(ATTENTION, '"attention.qkv", config.qkv_bias)', '"attention.qkv", false)')]),
    dict(name="the bias of attention's output is dropped", found_by=tests("llama"),
         edits=[(ATTENTION, '"attention.output", config.output_bias)', '"attention.output", false)')]),
    dict(name="the bias of the MLP's output is dropped", found_by=tests("llama"),
         edits=[(MLP, 'down_(binding, config.module + ".down", config.bias)',
                 'down_(binding, config.module + ".down", false)')]),
    dict(name="the sliding window is ignored", found_by=tests("qwen2"),
         edits=[(ATTENTION, "    op.window = config_.window;\n", "")]),
    dict(name="the softmax scale is removed in bfloat16 alone", found_by=tests(suites=("BFloat16",)),
         edits=[(ATTENTION, "    op.scale = scale_;\n",
                 "    op.scale = heads.q.value.dtype() == DType::kBF16 ? 1.f : scale_;\n")]),
    # What only some families have.
    dict(name="norms behind mixers and channels are removed",
         found_by=tests("gemma3_text") + tests("glm4") + tests("olmo2"),
         edits=[(LAYER, "if (norm) y = (*norm)(tape, y, {}, pass.stream_rows).y;", "static_cast<void>(norm), static_cast<void>(pass);")]),
    dict(name="the multiplier of residual branches is ignored", found_by=tests("granite"),
         edits=[(LAYER, "if (residual_multiplier_ == 1) return y;", "if (residual_multiplier_ != 0) return y;")]),
    dict(name="the multiplier of embeddings is ignored", found_by=tests("granite") + tests("gemma3_text"),
         edits=[(DECODER, "embedding_multiplier_ == 1 ? x :", "embedding_multiplier_ != 0 ? x :")]),
    dict(name="the divisor of logits is ignored", found_by=tests("granite"),
         edits=[("src/layers/vocabulary.cpp", "factor_ == 1 ? hidden :", "factor_ != 0 ? hidden :")]),
    dict(name="the family's scale of scores is ignored", found_by=tests("granite") + tests("gemma3_text"),
         edits=[(ATTENTION, "config.scale != 0 ? config.scale", "config.scale < 0 ? config.scale")]),
    dict(name="the norms of all queries and all keys are removed", found_by=tests("olmo2"),
         edits=[(ATTENTION, "if (norms_.empty()) return qkv;", "if (norms_.size() < 3) return qkv;")]),
    dict(name="the offset of norms is ignored", found_by=tests("gemma3_text"),
         edits=[(NORM, "offset_(static_cast<float>(offset))", "offset_(0 * static_cast<float>(offset))")]),
    dict(name="the offset of queries' and keys' norms is ignored", found_by=tests("gemma3_text"),
         edits=[(ATTENTION, "static_cast<float>(config.norm.offset), config.rope.sections}", "0.f, config.rope.sections}")]),
    dict(name="pairs are halves, not neighbours", found_by=tests("glm4"),
         edits=[(ATTENTION, "return {config.interleaved,", "return {config.interleaved && config.hidden == 0,")]),
    dict(name="whole heads are rotated", found_by=tests("phi3") + tests("glm4") + tests("smollm3"),
         edits=[(ROPE, "static_cast<double>(head_dim) * config.partial_rotary_factor)",
                 "static_cast<double>(head_dim) + 0 * config.partial_rotary_factor)")]),
    dict(name="a gate of GELU is one of silu", found_by=tests("gemma3_text"),
         edits=[(MLP, "activation_(config.activation)", "activation_(ops::Activation::kSilu)")]),
    dict(name="the sinks are ignored", found_by=tests("gpt_oss"),
         edits=[(ATTENTION, "heads.q, heads.k, heads.v, op, sinks);", "heads.q, heads.k, heads.v, op);")]),
    dict(name="the gate of experts is not clamped", found_by=tests("gpt_oss"),
         edits=[(EXPERTS, "down_bias_.leaf(tape), config_.form};", "down_bias_.leaf(tape), {}};")]),
    dict(name="the biases of experts are dropped", found_by=tests("gpt_oss"),
         edits=[(EXPERTS, "gate_up_bias_.leaf(tape),", "Var(),"),
                (EXPERTS, "tape.constant(no_down_bias_) : down_bias_.leaf(tape)", "tape.constant(no_down_bias_) : Var()")]),
    dict(name="the bias of routers is dropped", found_by=tests("gpt_oss"),
         edits=[(ROUTER, "gate_bias_.exists() ? wide(", "gate_bias_.exists() && place_ > 99 ? wide(")]),
    # Of pictures: rows of a tower, at their positions.
    dict(name="three positions are one", found_by=placed("Logits"),
         edits=[(DECODER_INPUT, "if (positions.dim(0) > 1) return positions.narrow(0, 1, 3);",
                 "if (positions.dim(0) > 4) return positions.narrow(0, 1, 3);"),
                (DECODER_INPUT, "return positions.reshape({positions.dim(1)});",
                 "return positions.narrow(0, 0, 1).reshape({positions.dim(1)});")]),
    dict(name="rows and columns of a picture are exchanged", found_by=placed("Positions"),
         edits=[(MEDIA, "first + row, first + column);", "first + column, first + row);")]),
    dict(name="text counts from the frames' longer side", found_by=["*/PlacedRowsParity.Positions/qwen2_5_vl_eager"],
         edits=[(MEDIA, "if (behind_highest)", "if (behind_highest && frames > 99)")]),
    dict(name="interleaved sections are in blocks, simd", found_by=placed("Logits", ("qwen3_vl", "qwen3_5"), ("best",)),
         edits=[("src/backends/simd/rotary.cpp", "if (sections.interleaved)", "if (sections.interleaved && half > 99)")]),
    dict(name="interleaved sections are in blocks, eager", found_by=placed("Logits", ("qwen3_vl", "qwen3_5"), ("eager",)),
         edits=[("src/ops/rotary/rotary.h", "if (!interleaved) return", "if (!interleaved || pair < 999) return")]),
    dict(name="rows are not added behind layers", found_by=placed("*", ("qwen3_vl", "qwen3_vl_moe")),
         edits=[(DECODER, "if (placed.after_layers.empty()) return {};", "if (placed.after_layers.size() < 99) return {};")]),
    # What is too small for bfloat16's bounds, float32 finds.
    dict(name="the eps of the layers' norms is ignored", found_by=tests(suites=FLOAT32),
         edits=[(NORM, "eps_(static_cast<float>(eps)),", "eps_(0 * static_cast<float>(eps)),")]),
    dict(name="the eps of queries' and keys' norms is ignored", found_by=tests("qwen3", FLOAT32),
         edits=[(ATTENTION, ".eps = static_cast<float>(config_.norm.eps),", ".eps = 0.f,")]),
    dict(name="theta is ignored", found_by=tests(suites=FLOAT32),
         edits=[(ROPE, "std::pow(config.theta,", "std::pow(10000.0,")]),
    dict(name="the scaling of frequencies is ignored", found_by=tests("llama", FLOAT32),
         edits=[(ROPE, "frequency = llama3_frequency(config, frequency);", "static_cast<void>(frequency);")]),

    # One kernel, or one pass, alone.
    dict(name="eager: the norm's weight is ignored", found_by=tests(kernels=("eager",)),
         edits=[("src/ops/rms_norm/rms_norm.cpp", "p::cast(tape, sum, DType::kF32), factors, eps);",
                 "p::cast(tape, sum, DType::kF32), tape.constant(Tensor::from(std::vector<float>("
                 "static_cast<size_t>(x.shape()[1]), 1.f))), eps);")]),
    dict(name="fast: the norm's weight is ignored", found_by=tests(kernels=("fast",)),
         edits=[("src/backends/simd/rms_norm.cpp", "store(hn::Mul(normed, hn::Add(load(weight + i, lanes), offset)), y + i, lanes);",
                 "store(normed, y + i, lanes);")]),
    dict(name="eager: the gate is not multiplied", found_by=tests(kernels=("eager",)),
         edits=[("src/ops/swiglu/swiglu.cpp", "p::mul(tape, gate, p::sigmoid(tape, inner(tape, gate, activation)))",
                 "p::sigmoid(tape, inner(tape, gate, activation))")]),
    dict(name="fast: the gate is not multiplied", found_by=tests(kernels=("fast",)),
         edits=[("src/backends/simd/swiglu.cpp", "store(hn::Mul(hn::Mul(gate, logistic(Act::inner(gate))), up), y + i, lanes);",
                 "store(hn::Mul(logistic(Act::inner(gate)), up), y + i, lanes);")]),
    dict(name="fast: backward forgets the softmax scale", found_by=tests(kernels=("fast",), test="LossAndGradients"),
         edits=[(FAST_SCORES, "store(hn::Mul(hn::Mul(p, fill(scores.scale)), change), grad_at, lanes);",
                 "store(hn::Mul(p, change), grad_at, lanes);")]),
    dict(name="fast: backward turns heads forward", found_by=tests(kernels=("fast",), test="LossAndGradients"),
         edits=[("src/backends/simd/rotary.cpp", "hn::Neg(load(at.sin + i, lanes)));", "load(at.sin + i, lanes));")]),
    dict(name="recomputed layers lose the MLP's branch", found_by=tests(suites=FLOAT32, test="Checkpointed*"),
         edits=[(LAYERS, "std::vector<Var> results{residual_add(inner, end.x, end.branch)};",
                 "std::vector<Var> results{end.x};")]),
    dict(name="packed documents see one another", found_by=tests(suites=FLOAT32, test="PackedDocuments*"),
         edits=[(PASS, "pass.cu_seqlens_q = pass.cu_seqlens_k = input.cu_seqlens;",
                 "pass.cu_seqlens_q = pass.cu_seqlens_k =\n"
                 "      Tensor::from(std::vector{0, static_cast<int32_t>(input.ids.numel())});")]),
    dict(name="a token in pages forgets what its sequence holds", found_by=tests(suites=FLOAT32, test="Greedy*"),
         edits=[(PASS, "*position++ = static_cast<int32_t>(at) + shift_of(shifts, s);",
                 "*position++ = static_cast<int32_t>(at - sequences.held_by(s)) + shift_of(shifts, s);")]),

    # Latent attention.
    dict(name="pairs of latent attention are halves", found_by=tests("deepseek_v3"),
         edits=[(LATENT, "op.interleaved = c_.rope_interleave;", "op.interleaved = false;")]),
    dict(name="the latent is not normed", found_by=tests("deepseek_v3"),
         edits=[(LATENT, "kv_norm_(tape, latent, {}, pass.rows).y, rotated.k_rope};",
                 "layers::compact(tape, latent), rotated.k_rope};")]),
    dict(name="the latents' norms have the model's eps", found_by=tests("deepseek_v3", FLOAT32),
         edits=[(DEEPSEEK, "config.norm_eps = kLatentNormEps;", "config.norm_eps = c.rms_norm_eps;")]),
    dict(name="YaRN's factor of scores is missing", found_by=tests("deepseek_v3"),
         edits=[(DEEPSEEK, "* layers::rope_softmax_scaling(rope);", ";")]),
    dict(name="keys lose the part that heads share", found_by=tests("deepseek_v3"),
         edits=[("src/ops/latent_heads/latent_heads.cpp", "p::cast(tape, p::add(tape, wide, zeros), kv.dtype());",
                 "p::cast(tape, p::mul(tape, wide, zeros), kv.dtype());"),
                ("src/backends/simd/latent_heads.cpp", "k = mover.copy(shared, rope, mover.copy(kv, nope, k));",
                 "k = mover.copy(kv, rope, mover.copy(kv, nope, k));")]),

    # Mixtures of experts.
    dict(name="weights of experts sum to one where they should not", found_by=tests("qwen3_moe"),
         edits=[("src/models/qwen3_moe/qwen3_moe.cpp", "of_vl || reader.boolean(\"norm_topk_prob\", false);",
                 "of_vl || !reader.boolean(\"norm_topk_prob\", false);")]),
    dict(name="the load balancing loss has no gradient", found_by=tests("qwen3_moe", FLOAT32, test="LossAndGradients"),
         edits=[("src/ops/load_balancing_loss/load_balancing_loss.cpp", "  return loss;\n}", "  return tape.constant(loss.value);\n}")]),
    dict(name="all groups of experts may be chosen from", found_by=WITH_EXPERTS,
         edits=[("src/models/deepseek_v3/mixture.cpp", "routing.top_groups = reader.positive(\"topk_group\", 4, kMostExperts);",
                 "routing.top_groups = routing.groups;\n  reader.find(\"topk_group\");")]),
    dict(name="routed experts are not scaled", found_by=WITH_EXPERTS,
         edits=[("src/models/deepseek_v3/mixture.cpp", "static_cast<float>(reader.number(\"routed_scaling_factor\", 2.5));",
                 "0 * static_cast<float>(reader.number(\"routed_scaling_factor\", 2.5)) + 1;")]),
    dict(name="recomputed layers have no load balancing loss", found_by=tests("qwen3_moe", FLOAT32, test="Checkpointed*"),
         edits=[("src/autograd/tape.cpp", "for (size_t i = 0; i < ends.size(); ++i)", "for (size_t i = 0; i < 1; ++i)")]),

    # The step.
    dict(name="weight decay is missing", found_by=tests(suites=STEPS),
         edits=[(OPTIMIZER, "decays ? static_cast<float>(options.weight_decay) : 0.f;", "decays ? 0.f : 0.f;")]),
    dict(name="norms and biases decay", found_by=tests(suites=STEPS),
         edits=[(OPTIMIZER, "options.decay_all || store.spec(i).decay;", "true;")]),
    dict(name="the bias corrections are missing", found_by=tests(suites=STEPS),
         edits=[("src/ops/adamw/adamw.cpp", "std::sqrt(new_v / correction2) + op.eps", "std::sqrt(new_v) + op.eps"),
                ("src/ops/adamw/adamw.cpp", "op.lr * (new_m / correction1) / denominator", "op.lr * new_m / denominator"),
                ("src/backends/simd/adamw.cpp", "hn::Sqrt(hn::Div(new_v, f.correction2))", "hn::Sqrt(new_v)"),
                ("src/backends/simd/adamw.cpp", "hn::Div(new_m, f.correction1)", "new_m")]),
    dict(name="AdamW's count of steps stays", found_by=tests(suites=STEPS),
         edits=[(OPTIMIZER, "op_.step.set(op_.step + 1);", "")]),
    dict(name="AdamW's eps is ignored", found_by=tests(suites=STEPS),
         edits=[(OPTIMIZER, "op_.eps = static_cast<float>(options.eps);", "op_.eps = 0;")]),
    dict(name="the momenta's factors are swapped", found_by=tests(suites=STEPS),
         edits=[(OPTIMIZER, "op_.beta1 = static_cast<float>(options.beta1);",
                 "op_.beta1 = static_cast<float>(options.beta2);")]),
    dict(name="clipping is missing", found_by=tests(suites=STEPS),
         edits=[(TRAINER, "optimizer_.update(data.grad_norm, options_.max_grad_norm);",
                 "optimizer_.update(data.grad_norm, 0);")]),
    dict(name="micro-batches forget the gradients before", found_by=tests(suites=STEPS, test="*MicroBatches"),
         edits=[(TRAINER, "    const trace::Span backward(\"backward\");\n",
                 "    const trace::Span backward(\"backward\");\n    model_->parameters().reset_gradients();\n")]),
]
