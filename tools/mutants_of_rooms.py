"""What tools/mutants.py breaks in addition to models: of ranks, rollouts, the exchange of weights, grpo, quantizers and files.

Each line names the test program, the tests that have to fail, and what is broken: a file, a text that occurs once there, and
its replacement.
"""
GRADIENTS, NORM = "src/optimizers/gradient_sums.cpp", "src/optimizers/gradient_norm.cpp"
SUMS, THREADS = "src/collectives/sums.h", "src/collectives/threads/threads.cpp"
GROUP, SHARDED = "src/collectives/group.cpp", "src/layers/parameters/sharded_layers.cpp"
SCHEDULE, CACHE, PARTS = "src/rollout/scheduling/schedule.cpp", "src/rollout/scheduling/sequence_cache.cpp", "src/rollout/scheduling/prompt_parts.cpp"
BATCH, TOKENS, SLOTS = "src/rollout/passes/batch_input.cpp", "src/rollout/passes/token_sampler.cpp", "src/rollout/scheduling/state_slots.cpp"
ANSWER, REQUESTS = "src/rollout/requests/answer.cpp", "src/rollout/requests/request_limits.cpp"
INCOMING, GATE, ROUNDING = "src/exchange/incoming_weights.cpp", "src/exchange/pass_gate.cpp", "src/exchange/rounding.cpp"
COVERAGE, SAMPLER = "src/exchange/coverage.cpp", "src/recipes/grpo/sampler.cpp"
RECORD, SELECTION = "src/recipes/grpo/answers/answer_record.cpp", "src/recipes/grpo/group_selection.cpp"
UPDATES = "src/recipes/grpo/rollout_updates.cpp"
ADVANTAGES, JOURNAL = "src/recipes/grpo/advantages.cpp", "src/recipes/grpo/answers/journal.cpp"
POLICY, SEARCH = "src/losses/policy.cpp", "src/quant/amax_search.cpp"
ENCODE, ZEROS, HISTOGRAM = "src/quant/encode.cpp", "src/quant/zero_points.cpp", "src/quant/histogram.cpp"
CLIP, SHARED_AMAX = "src/calibration/awq_clip.cpp", "src/calibration/shared_amax.cpp"
PAIRS, PIPELINE = "src/collectives/threads/pairs.cpp", "src/parallel/pipeline/"
FILES, STAGED = "src/base/files.cpp", "src/checkpoints/files/staged_folder.cpp"


def mutant(name, program, found_by, *edits):
    return dict(name=name, program=program, found_by=found_by.split(), edits=[edits[i:i + 3] for i in range(0, len(edits), 3)])


MUTANTS = [
    # Ranks: what they sum, and with whom.
    mutant("replicas keep sums of layers apart", "test_recipes", "TrainerMeshes.*",
           GRADIENTS, "      if (trained_.sharing().replicate != nullptr)\n",
           "      if (trained_.sharing().replicate != nullptr && left_ > 0)\n"),
    mutant("replicas keep sums of sharded states apart", "test_recipes", "TrainerMeshes.ReplicasOfShards*",
           GRADIENTS, "if (trained_.sharing().replicate != nullptr) trained_.sharing().replicate->all_reduce(name, own);", ""),
    mutant("experts are summed over ranks with other experts", "test_recipes", "TrainerMeshes.ReplicasOfDividedExperts*",
           GRADIENTS, "trained_.is_by_expert(slot) ? trained_.sharing().experts : ranks_;", "ranks_;"),
    mutant("the norm is of a rank's own part", "test_recipes", "TrainerMeshes.ReplicasOfShards*",
           NORM, "over(sharing.shard, sum_of_squares(gradients[kSharded])),", "sum_of_squares(gradients[kSharded]),"),
    mutant("what tensor ranks share counts twice in the norm", "test_recipes", "CriticMeshes.*",
           NORM, "if (part.is_first) continue;", "if (part.count > 0) continue;"),
    mutant("the last stage forgets what the first adds to a tied weight", "test_training", "PipelineStages.*",
           GRADIENTS, "    add_in_place(own, theirs);", "    (void)theirs;"),
    mutant("the norm counts a tied weight on both stages", "test_training", "PipelineStages.*",
           NORM, "    if (trained.placement(slot).is_copy()) continue;  // it counts on its own stage\n", ""),
    mutant("balancing losses of earlier stages have no gradient", "test_training", "PipelineStages.HaveLayersOfSeveralKinds",
           "src/layers/glue.cpp", "    if (loss) loss->add(one);\n", ""),
    mutant("sums of layers forget earlier micro-batches", "test_recipes", "TrainerMeshes.*",
           SHARDED, "    add_in_place(parameters_.layer_gradients().sum(late.parameter), late.sum);", "    (void)late;"),
    mutant("gradients of what all tensor ranks read stay apart", "test_recipes", "CriticMeshes.*",
           "src/primitives/collectives.cpp", "slot->add(summed(grad, ranks));", "slot->add(grad);"),
    mutant("a sum leaves out the last rank", "test_collectives", "Threads.*",
           SUMS, "from.subspan(1))", "from.subspan(1, from.size() - 2))"),
    mutant("a sum reads the first elements again and again", "test_collectives", "Threads.EveryElementOfManyIsSummed",
           SUMS, "static_cast<float>(one[first + i]);", "static_cast<float>(one[i]);"),
    mutant("parts are gathered in another order", "test_collectives", "Threads.GatherScatterAndBroadcast",
           THREADS, "static_cast<int64_t>(r) * part.bytes();", "static_cast<int64_t>(all.size() - 1 - r) * part.bytes();"),
    mutant("machines of one name are one", "test_cli", "Hosts.OfOneNameAreSeveral",
           "src/collectives/hosts.cpp", "own.host, own.boot)", "own.host, 0)"),
    mutant("a host that does not share the output folder is not refused", "test_cli", "Hosts.LeaveTheBitsOfOneHost",
           "src/parallel/same_on_all_ranks.cpp", "if (seen[rank].empty())", "if (false)"),
    mutant("ranks of an unknown number are one", "test_collectives", "Launchers.OfUnknownSizeAreSeenWhereThereAreOtherRanks",
           "src/collectives/launched.cpp", "std::max(*rank + 1, on_machine)", "1"),
    mutant("a part of a group has a deadline of its own", "test_collectives", "Threads.PartsShareTheDeadlineOfTheWhole",
           GROUP, "  made->deadline_ = deadline_;\n", ""),
    mutant("only the first transfer of an exchange progresses", "test_collectives", "Pairs.TransfersOfAnExchangeProgressTogether",
           PAIRS, "i < own.received.size() && !broken_", "i < std::min<size_t>(1, own.received.size()) && !broken_"),
    mutant("a transfer is taken for another one", "test_collectives", "Pairs.AnotherTransfer*",
           PAIRS, "if (!same(**found, *wanted)) {", "if (false) {"),
    mutant("a rank waits for one that has ended", "test_collectives", "Pairs.APartnerThatIsGone*",
           PAIRS, "if (left_[static_cast<size_t>(other)]) break_off", "if (false) break_off"),

    # Pipelines: who has which layers, and when.
    mutant("transfers come as late as they may", "test_parallel", "Schedules.AreIdleAsPublished",
           PIPELINE + "transfers.cpp", "    return best;\n", "    return latest;\n"),
    mutant("gradients of weights come one micro-batch later", "test_parallel", "Schedules.*",
           PIPELINE + "schedule.cpp", "action.micro_batch >= rank)", "action.micro_batch > rank)"),
    mutant("a rank begins with fewer forward passes than published", "test_parallel", "Schedules.KeepNoMoreActivations*",
           PIPELINE + "schedule.cpp", "2 * behind +", "behind +"),
    mutant("a division forgets the head", "test_parallel", "LayerParts.*",
           PIPELINE + "layer_parts.cpp", "(part == parts_ - 1 ? costs_.head : 0)", "0"),
    mutant("only the largest part counts in a division", "test_parallel", "LayerParts.*",
           PIPELINE + "layer_parts.cpp", "before + own * own", "before + own"),
    mutant("a check ignores an action that comes twice", "test_parallel", "ScheduleCheck.*",
           PIPELINE + "schedule_check.cpp", "if (done) fail_schedule", "if (false) fail_schedule"),
    mutant("a check allows more activations than a schedule says", "test_parallel", "ScheduleCheck.*",
           PIPELINE + "schedule_check.cpp", "held.activations > most)", "held.activations > most + 1)"),
    mutant("a rank has two transfers at a time", "test_parallel", "Timeline.*",
           PIPELINE + "timeline.cpp", "ends_before(each), ranks_[each].transfer_end})", "ends_before(each)})"),

    # Rollouts: what the engine keeps, finds again and computes again.
    mutant("experts are recorded twice after a preemption", "test_rollout", "EngineExperts.OfTokensThatAreComputedAgain*",
           BATCH, "sequence.computed == 0) experts.clear();", "sequence.computed < 0) experts.clear();"),
    mutant("a running request keeps its adapter's old weights", "test_rollout", "EngineAdapters.* Schedule.*",
           SCHEDULE, "sequence->versions != WeightVersions::of(model_version, sequence->request().adapter))",
           "sequence->versions.model != model_version)"),
    mutant("a running request keeps the model's old weights", "test_rollout", "Engine.NoPageSurvives* Schedule.*",
           SCHEDULE, "sequence->versions != WeightVersions::of(model_version, sequence->request().adapter))",
           "sequence->versions.adapter != WeightVersions::of(0, sequence->request().adapter).adapter)"),
    mutant("parts of a hybrid's prompt end anywhere", "test_rollout", "EngineParts.* PromptParts.*",
           PARTS, "if (end < sequence.prompt()) end = end / kPartOfSlots * kPartOfSlots;", ""),
    mutant("pages of other weights are found", "test_rollout", "Engine.NoPageSurvives* SequenceCache.*",
           CACHE, "{before, sequence.versions.model, sequence.versions.adapter,",
           "{before, 0, sequence.versions.adapter,"),
    mutant("pages of other adapters are found", "test_rollout", "Engine.AnAdaptersAnswer* SequenceCache.*",
           CACHE, "{before, sequence.versions.model, sequence.versions.adapter,",
           "{before, sequence.versions.model, 0,"),
    mutant("a prompt's last token is found in the cache", "test_rollout",
           "Engine.AnAnswerDependsOnItsRequestAlone SequenceCache.*",
           CACHE, "const int64_t most = (sequence.length() - 1) / size;", "const int64_t most = sequence.length() / size;"),
    mutant("a hybrid's slot keeps another request's state", "test_rollout", "Engine.* SequenceCache.*",
           CACHE, "if (parts_.has_slots) states_.clear_slot(sequence.slot);", ""),
    mutant("log-probabilities are at another request's temperature", "test_rollout", "Engine.LogProbabilities* TokenSampler.*",
           TOKENS, "sequences[end]->request().log_prob_temperature == temperature) ++end;", "temperature > 0) ++end;"),
    mutant("an answer continues after its stop token", "test_rollout", "Answer.*",
           ANSWER, "return Finish::kStopToken;", "return {};"),
    mutant("a prompt may be as long as the context", "test_rollout", "RequestLimits.*",
           REQUESTS, "if (length >= context)", "if (length > context)"),
    mutant("the newest copy of a state makes room", "test_rollout", "StateSlots.*",
           SLOTS, "    slot = kept_.front().second;\n    kept_.pop_front();",
           "    slot = kept_.back().second;\n    kept_.pop_back();"),
    mutant("parts of prompts count as sequences that decode", "test_rollout", "BatchInput.*",
           BATCH, "input.batch.decoding += decodes;", "input.batch.decoding += 1;"),
    mutant("every pass is captured on its own", "test_rollout", "DecodingPasses.*",
           "src/rollout/passes/decoding_passes.cpp", "if (pass == nullptr)", "if (true)"),
    mutant("a request that has ended gets another token", "test_rollout", "DecodingAhead.*",
           "src/rollout/passes/decoding_ahead.cpp", "if (row == &sequence) row = nullptr;", "static_cast<void>(row);"),

    # The exchange of weights.
    mutant("elements that came are counted as one row", "test_exchange", "Coverage.*",
           COVERAGE, "count_ += (columns.end - columns.begin) * (rows.end - rows.begin);",
           "count_ += columns.end - columns.begin;"),
    mutant("elements may come twice", "test_exchange", "Exchange.ElementsThatComeTwice*",
           COVERAGE, "if (other.begin >= columns.end) break;", "if (other.begin < columns.end) break;"),
    mutant("a tensor of which a part came is whole", "test_exchange", "Exchange.ATensorOfWhichAPartCameIsNamed",
           INCOMING, "if (elements_[i] == elements_of(i)) continue;", "if (elements_[i] > 0) continue;"),
    mutant("new weights keep the old version", "test_exchange", "Exchange.BothKinds*",
           INCOMING, "  parameters_.changed();\n", ""),
    mutant("passes go on while weights come in place", "test_exchange", "Direct.PassesAreHeldUntilAllHaveCome",
           GATE, "held_ = held_ || direct;", "static_cast<void>(direct);"),
    mutant("weights that are partly new are used", "test_exchange", "Direct.AfterAnErrorInTheMiddle*",
           GATE, "  held_ = !broken_.empty();\n  broken_at_", "  held_ = false;\n  broken_at_"),
    mutant("scales that are not finite are taken", "test_exchange", "RoundedExchange.EveryErrorLeavesTheOldScales",
           ROUNDING, "if (!std::isfinite(value) || (value < 0", "if ((value < 0"),

    # grpo: which answers, by which weights, and what they are worth.
    mutant("every rollout has the seeds of the first", "test_cli", "GrpoUpdates.EachRolloutHasSeedsOfItsOwn",
           SAMPLER, "RandomPurpose::kSampling, static_cast<uint64_t>(rollout))", "RandomPurpose::kSampling, 0)"),
    mutant("versions count rollouts", "test_cli", "GrpoUpdates.VersionsCountUpdatesNotRollouts",
           SAMPLER, "options.updates = rollout * keys_.updates();", "options.updates = rollout;"),
    mutant("advantages are those of other ranks' answers", "test_recipes", "GrpoAdvantages.AnswersToAPromptStayTogether*",
           ADVANTAGES, "return std::pair(a.group, a.number) < std::pair(b.group, b.number);\n  });\n  return all;",
           "return a.number < b.number;\n  });\n  return all;"),
    mutant("answers that are not trained on count", "test_recipes", "GrpoAdvantages.WhatIsNotLearnt*",
           ADVANTAGES, "if (!is_trained(sample)) own.reward", "if (!is_trained(sample) && own.old.empty()) own.reward"),
    mutant("tokens of environments are trained on", "test_recipes", "GrpoAdvantages.TokensOfEnvironments*",
           ADVANTAGES, "if (passage.sampled[i] != 0) values.push_back(", "values.push_back("),
    mutant("an answer that was cut off expects nothing more", "test_recipes", "GrpoAdvantages.ATruncatedAnswer*",
           ADVANTAGES, "keys.critic.bootstrap_truncated && sample.is_truncated()",
           "keys.critic.bootstrap_truncated && !sample.is_truncated()"),
    mutant("a run that continues takes over answers of before", "test_recipes", "Journal.ReadsTheRollout*",
           JOURNAL, "if (!keep || each.rollout() != rollout) return;", "if (!keep || each.rollout() > rollout) return;"),
    mutant("answers of other settings are taken over", "test_recipes", "AnswerRecord.TakesOver*",
           RECORD, "hasher.update(settings.data(), settings.size());\n", ""),
    mutant("dynamic sampling keeps every group", "test_recipes", "GroupSelection.DynamicSampling*",
           SELECTION, "(spread || !dynamic_sampling_)", "(spread || dynamic_sampling_)"),
    mutant("the first update has all groups", "test_recipes", "RolloutUpdates.EachHas*",
           UPDATES, "selection.place_of(sample.group) / groups == update", "update == 0"),
    mutant("ratios are clipped below for good answers", "test_losses", "Policy.*",
           POLICY, "if (advantage < 0 && ratio < low) {", "if (advantage > 0 && ratio < low) {"),
    mutant("an answer's ratio is of its sum", "test_losses", "Policy.*",
           POLICY, "return std::exp(sum / static_cast<double>(answer.now.size()));", "return std::exp(sum);"),

    # Quantizers: what an amax is of, and what it becomes.
    mutant("searches see the first 1024 rows", "test_quant", "AmaxSearch.EveryRowOfManyIsSearched",
           SEARCH, "const int64_t row = from + i / parts;", "const int64_t row = i / parts;"),
    mutant("errors of later rows belong to the first ones", "test_quant", "AmaxSearch.EveryRowOfManyIsSearched",
           SEARCH, "(groups.first(from + i / parts) + i % parts) * kNumMultipliers",
           "(groups.first(i / parts) + i % parts) * kNumMultipliers"),
    mutant("experts without tokens are clipped", "test_calibration", "AwqClip.ExpertsWithoutTokensKeepTheirAmax",
           CLIP, "== 0 && own[0] == 0) continue;", "== 0 && own[0] < 0) continue;"),
    mutant("blocks take the next larger amax", "test_calibration", "AwqClip.BlocksTake*",
           CLIP, "amax.data<float>()[i] *= clip_ratio(best);",
           "amax.data<float>()[i] *= clip_ratio(std::min<int64_t>(best + 1, kNumClips - 1));"),
    mutant("columns have the first one's amax", "test_quant", "NumberFormat.*",
           ENCODE, "        factors = factors_of(format, shared[r]);\n", "        factors = factors_of(format, shared[0]);\n"),
    mutant("zero points are those of the next group", "test_quant", "ZeroPoints.*",
           ZEROS, "integer_of(element, points[group], x)", "integer_of(element, points[(group + 1) % points.size()], x)"),
    mutant("percentiles cut twice as much", "test_quant", "RangeSearch.PercentilesCutBothEnds",
           HISTOGRAM, "((100 - percentile) / 200);", "((100 - percentile) / 100);"),
    mutant("each rank keeps its own amax", "test_recipes", "QuantizerMeshes.AmaxLossAndGradientsAreOneRanks",
           SHARED_AMAX, "values[i] = farther(values[i], other[i]);", "values[i] = farther(values[i], values[i] + 0 * other[i]);"),

    # Configuration and files.
    mutant("a list that a flag sets keeps the old elements' keys", "test_config", "Dump.AListThatAFlagSetsStartsAnew",
           "src/config/load.cpp", "    forget_elements(path);\n", ""),
    mutant("a file gets its name before it is on the disk", "test_cli", "WriteOrder.*",
           FILES, "    writer.close();\n    rename_path(temporary, path);\n",
           "    rename_path(temporary, path);\n    writer.close();\n"),
    mutant("a file's name is not brought to the disk", "test_cli", "WriteOrder.*",
           FILES, "  sync_directory(parent_path(path));\n", ""),
    mutant("files are not brought to the disk", "test_cli", "WriteOrder.*",
           FILES, "const bool synced = ::fsync(file) == 0 || errno == EINVAL;", "const bool synced = file >= 0 || errno == EINVAL;"),
    mutant("a folder's names are not brought to the disk before it is named", "test_cli", "WriteOrder.*",
           STAGED, "  sync_directory(path_);\n", ""),
    mutant("a folder's own name is not brought to the disk", "test_cli", "WriteOrder.*",
           STAGED, "  sync_directory(parent);\n", ""),
]
