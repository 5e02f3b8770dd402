// What other programs for training call our keys.
#include "recipes/keys/foreign_names.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

const ForeignNames kForeign[] = {
    {"train.optimizer.lr", {"learning_rate", "peak_lr", "max_lr", "base_lr"}},
    {"train.optimizer.betas", {"adam_beta1", "adam_beta2", "beta1", "beta2", "adam_betas"}},
    {"train.optimizer.eps", {"adam_epsilon", "adam_eps", "epsilon"}},
    {"the optimizer is AdamW; leave it out", {"optim", "optimizer_type", "optimizer_name"}},
    {"train.schedule.type", {"lr_scheduler_type", "lr_scheduler", "scheduler", "lr_schedule"}},
    {"train.schedule.warmup_steps", {"warmup", "num_warmup_steps", "lr_warmup_steps"}},
    {"use 'train.schedule.warmup_steps', a number of updates", {"warmup_ratio", "warmup_fraction"}},
    {"use 'train.schedule.final_fraction', a fraction of the peak learning rate",
     {"min_lr", "lr_min", "min_lr_ratio", "lr_scheduler_kwargs"}},
    {"train.epochs", {"num_train_epochs", "num_epochs", "n_epochs", "max_epochs", "total_epochs"}},
    {"train.steps",
     {"max_steps", "num_steps", "total_steps", "num_training_steps", "train_steps", "max_iters"}},
    {"train.rows_per_step", {"batch_size", "global_batch_size", "train_batch_size", "effective_batch_size"}},
    {"use 'train.rows_per_step' for the rows of one update; 'train.micro_batch_tokens' bounds what is "
     "computed "
     "at once",
     {"per_device_train_batch_size", "per_device_batch_size", "micro_batch_size",
      "gradient_accumulation_steps", "grad_accum", "grad_accumulation_steps", "ppo_micro_batch_size",
      "ppo_micro_batch_size_per_gpu"}},
    {"evaluation takes 'train.micro_batch_tokens' at once; leave it out",
     {"per_device_eval_batch_size", "eval_batch_size"}},
    {"train.max_grad_norm",
     {"gradient_clipping", "grad_clip", "clip_grad", "clip_grad_norm", "grad_norm_clip"}},
    {"use 'train.activation_checkpointing: selective', or full",
     {"gradient_checkpointing", "use_gradient_checkpointing", "enable_gradient_checkpointing",
      "gradient_checkpointing_kwargs", "recompute"}},
    {"train.seed", {"random_seed", "data_seed"}},
    {"train.resume", {"resume_from_checkpoint", "resume_from", "overwrite_output_dir"}},
    {"use 'model.dtype: bfloat16'", {"bf16", "fp16", "mixed_precision", "precision", "amp", "pure_bf16"}},
    {"model.dtype", {"torch_dtype", "compute_dtype"}},
    {"model.path",
     {"model_name_or_path", "model_name", "model_id", "base_model", "model_path",
      "pretrained_model_name_or_path"}},
    {"the tokenizer is that of the folder 'model.path'; leave it out",
     {"tokenizer", "tokenizer_path", "tokenizer_name", "tokenizer_name_or_path"}},
    {"use 'model.base_dtype' to keep a model that adapters are trained of in 4 bits (nf4) or 8 "
     "(float8_e4m3fn)",
     {"load_in_8bit", "load_in_4bit", "quantization", "quantization_bit", "bits", "qlora",
      "bnb_4bit_quant_type"}},
    {"use 'model.base_dtype: nf4_double'",
     {"double_quantization", "double_quant", "bnb_4bit_use_double_quant", "use_double_quant"}},
    {"use 'model.ops_implementation.attn_implementation', or leave it out for the fastest",
     {"flash_attn", "flash_attention", "use_flash_attention", "use_flash_attn", "use_flash_attention_2",
      "sdp_attention"}},
    {"data.train",
     {"train_file", "train_files", "train_data", "train_dataset", "dataset", "datasets", "dataset_name",
      "dataset_path", "data_path", "data_files"}},
    {"data.eval",
     {"eval_file", "eval_data", "eval_dataset", "validation_file", "validation_data", "val_file", "val_data",
      "valid_data", "test_file", "test_datasets"}},
    {"data.eval_fraction",
     {"val_set_size", "val_size", "val_split", "eval_split", "validation_split", "test_size", "eval_ratio"}},
    {"data.max_length",
     {"max_seq_length", "max_seq_len", "seq_length", "seq_len", "sequence_len", "sequence_length",
      "cutoff_len", "block_size", "context_length", "model_max_length"}},
    {"data.packing", {"sample_packing", "pack", "packed", "pack_sequences", "multipack"}},
    {"data.loss",
     {"train_on_inputs", "train_on_prompt", "assistant_only_loss", "completion_only_loss", "mask_prompt",
      "mask_inputs", "train_on_source"}},
    {"data.template_kwargs", {"chat_template_kwargs"}},
    {"data.threads",
     {"dataloader_num_workers", "num_workers", "num_proc", "dataset_num_proc", "preprocessing_num_workers"}},
    {"output", {"output_dir", "out_dir", "output_path", "save_dir", "checkpoint_dir", "run_dir"}},
    {"device", {"accelerator", "use_cpu", "no_cuda", "use_cuda", "cuda", "gpu"}},
    {"'--ranks N' trains on N GPUs, with 'parallel.shard' for optimizer states in parts (ZeRO 1) and "
     "'parallel.shard_level: 3' for weights in parts, too (ZeRO 3, FSDP): docs/ranks.md",
     {"deepspeed", "deepspeed_config", "zero_stage", "fsdp", "fsdp_config",
      "fsdp_transformer_layer_cls_to_wrap"}},
    {"use '--ranks N', one rank for each GPU: docs/ranks.md",
     {"ddp", "nproc_per_node", "num_gpus", "n_gpus", "n_gpus_per_node", "num_processes", "world_size",
      "ddp_timeout"}},
    {"'mpirun' or 'srun' starts the ranks on several machines, which share the output folder: docs/ranks.md",
     {"nnodes", "num_nodes", "node_rank", "machine_rank", "num_machines", "master_addr", "main_process_ip"}},
    {"use 'parallel.context', with '--ranks N', and 'parallel.context_method' for ulysses, ring or usp: "
     "docs/ranks.md",
     {"context_parallel_size", "cp_size", "context_parallel_degree", "ulysses_size", "ulysses_parallel_size",
      "ulysses_sequence_parallel_size", "sequence_parallel_size", "sp_size", "sequence_parallel_degree"}},
    {"use 'parallel.tensor', with '--ranks N': docs/ranks.md",
     {"tensor_parallel_size", "tensor_model_parallel_size"}},
    {"checkpoint.every_steps",
     {"save_steps", "save_interval", "save_every", "save_freq", "checkpoint_every"}},
    {"checkpoint.keep_last", {"save_total_limit", "keep_checkpoints", "max_checkpoints"}},
    {"checkpoint.async", {"async_save", "save_async", "async_mode", "use_async_checkpointing"}},
    {"eval.every_steps", {"eval_steps", "eval_interval", "eval_every", "test_freq", "val_check_interval"}},
    {"use 'eval.every_steps' and 'checkpoint.every_steps'",
     {"eval_strategy", "evaluation_strategy", "save_strategy"}},
    {"use 'eval.every_steps' and 'checkpoint.every_steps', which are numbers of updates",
     {"evals_per_epoch", "saves_per_epoch"}},
    {"the first evaluation follows 'eval.every_steps' updates; 'temper eval' evaluates the model before them",
     {"eval_on_start", "val_before_train", "eval_at_start"}},
    {"the command says what happens: 'temper train' trains, and 'temper eval' evaluates; leave it out",
     {"do_train", "do_eval", "do_predict"}},
    {"every step is in metrics.jsonl and in TensorBoard's events of the run's folder; leave it out",
     {"logging_steps", "log_every", "log_interval", "logging_dir", "report_to", "wandb", "use_wandb",
      "wandb_project"}},
    {"nothing is uploaded: 'hf upload NAME FOLDER' sends the run's folder 'model'; leave it out",
     {"push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo"}},
    {"runs end after 'train.steps' or 'train.epochs'; the checkpoint with the lowest evaluation loss is kept "
     "as "
     "'best' in the run's folder",
     {"early_stopping", "early_stopping_patience", "early_stopping_threshold", "load_best_model_at_end",
      "metric_for_best_model", "greater_is_better"}},
    {"files are named by their paths in 'data.train' and 'data.eval'; leave it out",
     {"dataset_dir", "data_dir", "dataset_config", "dataset_config_name"}},
    {"columns are found by their usual names; of others write data.train: [{path: FILE, columns: {messages: "
     "NAME}}] (docs/data.md)",
     {"dataset_text_field", "field_messages", "text_column", "prompt_column", "response_column",
      "field_instruction", "field_output", "prompt_key", "response_key"}},
    {"all rows of a file are read; use 'train.steps', or 'train.epochs' below 1, for a shorter run",
     {"max_samples", "max_train_samples", "num_samples"}},
    {"packed rows need no sorting by length; see 'data.packing', and leave it out",
     {"group_by_length", "length_column_name"}},
    {"rows have no padding; leave it out",
     {"pad_to_sequence_len", "pad_to_max_length", "pad_to_multiple_of", "padding_side"}},
    {"prompt and answer together have 'data.max_length' tokens at most",
     {"max_prompt_length", "max_prompt_len", "prompt_max_len", "max_source_length"}},
    {"the special tokens are those of the folder 'model.path'; leave it out",
     {"special_tokens", "add_special_tokens", "new_special_tokens", "resize_vocab"}},
    {"code in a model's folder is never run; leave it out", {"trust_remote_code"}},
    {"noise on embeddings (NEFTune) is not supported; leave it out", {"neftune_noise_alpha", "neft_alpha"}},
    {"the chat template is the model's; 'data.chat_template' chooses another one",
     {"template", "prompt_template"}},
    {"the fastest kernels are chosen by themselves ('temper ops' lists them); leave it out",
     {"use_liger_kernel", "use_liger", "liger_kernel", "enable_liger_kernel", "use_unsloth", "use_kernels"}},
    {"adapters[].rank", {"r", "lora_r", "lora_rank", "lora_dim"}},
    {"adapters[].alpha", {"lora_alpha"}},
    {"adapters[].dropout", {"lora_dropout"}},
    {"adapters[].bias", {"lora_bias"}},
    {"adapters[].target_modules",
     {"lora_target", "lora_target_modules", "lora_modules", "lora_target_linear", "targets"}},
    {"adapters[].modules_to_save", {"lora_modules_to_save", "additional_target"}},
    {"adapters[].rslora", {"use_rslora"}},
    {"adapters[].patterns", {"rank_pattern", "alpha_pattern"}},
    {"adapters[].from", {"adapter_name_or_path", "lora_model_dir", "adapter_path", "lora_path"}},
    {"weight-decomposed adapters (DoRA) are not supported; leave it out", {"use_dora", "peft_use_dora"}},
    {"the matrices of an adapter share one learning rate, 'adapters[].lr' (LoRA+ is not supported)",
     {"loraplus_lr_ratio", "loraplus_lr_embedding"}},
    {"add 'adapters: [{rank: 16}]' to train an adapter (LoRA)",
     {"lora", "use_lora", "peft", "use_peft", "peft_config", "lora_config", "finetuning_type", "adapter",
      "adapter_type"}},
};

// What others call the choice of a recipe.
const std::string_view kRecipe[] = {"stage",  "algorithm",     "trainer", "trainer_type",
                                    "method", "training_type", "rl"};

std::string recipes_to_write() {
  std::vector<std::string> ways;
  for (const auto& [name, recipe] : registry<Recipe>().entries())
    ways.push_back(fmt::format("'recipe: {}'", name) +
                   (recipe.loss_key.empty() ? "" : fmt::format(" with '{}.{}'", name, recipe.loss_key)));
  return "use " + join(ways, " or ");
}

void answer(config::Schema& s, const ForeignNames& foreign) {
  for (const std::string_view name : foreign.names) s.answer(std::string(name), std::string(foreign.meant));
}

}  // namespace

void answer_foreign_names(config::Schema& s) {
  for (const ForeignNames& foreign : kForeign) answer(s, foreign);
  const std::string ways = recipes_to_write();
  for (const std::string_view name : kRecipe) s.answer(std::string(name), ways);
  for (const auto& [name, recipe] : registry<Recipe>().entries())
    for (const ForeignNames& foreign : recipe.foreign_names) answer(s, foreign);
}

}  // namespace temper::recipes
