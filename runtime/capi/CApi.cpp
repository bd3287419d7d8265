//===- CApi.cpp - lathe.h over the C++ runtime --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe.h"
#include "lathe/artifact/Hash.h"
#include "runtime/text/Completion.h"
#include <algorithm>
#include <cstring>

using namespace lathe;
using namespace lathe::runtime;

struct lathe_model {
  std::shared_ptr<LoadedArtifact> artifact;
  std::shared_ptr<const TextModel> text; ///< null without a tokenizer
};

struct lathe_engine {
  std::shared_ptr<const TextModel> text;
  std::unique_ptr<Engine> engine;
  bool isOpen(lathe_sequence s) const { return s < engine->maxSequences() && engine->isOpen(s); }
};

namespace {

thread_local std::string lastError;

lathe_status report(const Status &status) {
  lastError = status.message();
  return static_cast<lathe_status>(status.code());
}
lathe_status fail(StatusCode code, const char *message) { return report(Status(code, message)); }
lathe_status missing(const char *name) {
  return report(makeError(StatusCode::invalidArgument, "'%s' must not be NULL", name));
}

/// Copies the caller's |given| options, of whatever version, over the defaults in |known|.
template <typename T> Status takeOptions(const T *given, T &known) {
  if (!given) return Status();
  if (given->struct_size < sizeof(size_t) || given->struct_size > 4096)
    return makeError(StatusCode::invalidArgument, "options: struct_size is %zu; call the _init function first",
                     given->struct_size);
  std::memcpy(&known, given, std::min(given->struct_size, sizeof(T)));
  return Status();
}

/// Hands a result struct to a caller that may know a shorter one.
template <typename T> lathe_status giveResult(T value, T *out) {
  if (out->struct_size < sizeof(size_t) || out->struct_size > 4096)
    return report(makeError(StatusCode::invalidArgument, "result: struct_size is %zu, expected sizeof the struct",
                            out->struct_size));
  size_t size = std::min(out->struct_size, sizeof(T));
  value.struct_size = out->struct_size;
  std::memcpy(static_cast<void *>(out), &value, size);
  return LATHE_OK;
}

template <typename T>
lathe_status giveArray(const T *values, size_t count, T *buffer, size_t capacity, size_t *outCount) {
  *outCount = count;
  if (size_t n = std::min(count, capacity)) std::memcpy(buffer, values, n * sizeof(T));
  if (count <= capacity) return LATHE_OK;
  return report(
      makeError(StatusCode::resourceExhausted, "the result has %zu elements, the buffer %zu", count, capacity));
}

lathe_status needWords(const lathe_model *model) {
  if (!model) return missing("model");
  if (!model->text) return fail(StatusCode::failedPrecondition, "the artifact has no tokenizer");
  return LATHE_OK;
}

} // namespace

extern "C" {

const char *lathe_version(void) { return LATHE_VERSION; }
const char *lathe_error_message(void) { return lastError.c_str(); }

void lathe_model_options_init(lathe_model_options *options) { *options = {sizeof *options, nullptr}; }

lathe_status lathe_model_load(const char *path, const lathe_model_options *options, lathe_model **out_model) {
  if (!path) return missing("path");
  if (!out_model) return missing("out_model");
  lathe_model_options o;
  lathe_model_options_init(&o);
  if (Status s = takeOptions(options, o); !s.ok()) return report(s);
  auto artifact = LoadedArtifact::load(path, {o.variant ? o.variant : ""});
  if (!artifact.ok()) return report(artifact.status());
  auto model = std::make_unique<lathe_model>();
  model->artifact = *std::move(artifact);
  if (model->artifact->view().find(artifact::SectionKind::tokenizer)) {
    auto text = TextModel::create(*model->artifact);
    if (!text.ok()) return report(text.status());
    model->text = std::make_shared<const TextModel>(*std::move(text));
  }
  *out_model = model.release();
  return LATHE_OK;
}

void lathe_model_release(lathe_model *model) { delete model; }

lathe_status lathe_model_get_info(const lathe_model *model, lathe_model_info *out_info) {
  if (!model) return missing("model");
  if (!out_info) return missing("out_info");
  const Program &p = model->artifact->program();
  lathe_model_info info{};
  info.vocabulary = p.vocabulary;
  info.hidden_size = p.hiddenSize;
  info.max_context = p.maxSeq;
  info.max_rows = p.maxRows;
  info.has_tokenizer = model->text != nullptr;
  info.has_chat_template = model->text && model->text->hasTemplate();
  std::snprintf(info.variant, sizeof info.variant, "%s", artifact::toString(model->artifact->variant()));
  std::snprintf(info.content_hash, sizeof info.content_hash, "%s",
                artifact::toHex(model->artifact->view().contentHash()).c_str());
  return giveResult(info, out_info);
}

lathe_status lathe_tokenize(const lathe_model *model, const char *text, size_t length, uint32_t flags, int32_t *ids,
                            size_t capacity, size_t *out_count) {
  if (lathe_status s = needWords(model); s != LATHE_OK) return s;
  if (!text && length) return missing("text");
  if (!ids && capacity) return missing("ids");
  if (!out_count) return missing("out_count");
  auto result = model->text->tokenizer().encode({text ? text : "", length},
                                                {(flags & LATHE_ADD_SPECIAL) != 0, (flags & LATHE_PARSE_SPECIAL) != 0});
  return giveArray(result.data(), result.size(), ids, capacity, out_count);
}

lathe_status lathe_detokenize(const lathe_model *model, const int32_t *ids, size_t count, uint32_t flags, char *text,
                              size_t capacity, size_t *out_count) {
  if (lathe_status s = needWords(model); s != LATHE_OK) return s;
  if (!ids && count) return missing("ids");
  if (!text && capacity) return missing("text");
  if (!out_count) return missing("out_count");
  std::string result = model->text->tokenizer().decode({ids, ids + count}, flags & LATHE_KEEP_SPECIAL);
  return giveArray(result.data(), result.size(), text, capacity, out_count);
}

lathe_status lathe_chat(const lathe_model *model, const char *messages, size_t length, uint32_t flags, int32_t *ids,
                        size_t capacity, size_t *out_count) {
  if (lathe_status s = needWords(model); s != LATHE_OK) return s;
  if (!messages) return missing("messages");
  if (!ids && capacity) return missing("ids");
  if (!out_count) return missing("out_count");
  auto json = TextModel::parseMessages({messages, length});
  if (!json.ok()) return report(json.status());
  ChatOptions options;
  options.addGenerationPrompt = !(flags & LATHE_NO_GENERATION_PROMPT);
  options.parseSpecial = flags & LATHE_PARSE_SPECIAL;
  auto result = model->text->encodeChat(*json, options);
  if (!result.ok()) return report(result.status());
  return giveArray(result->data(), result->size(), ids, capacity, out_count);
}

void lathe_engine_options_init(lathe_engine_options *options) {
  *options = {};
  options->struct_size = sizeof *options;
  options->max_sequences = 1;
}

lathe_status lathe_engine_create(lathe_model *model, const lathe_engine_options *options, lathe_engine **out_engine) {
  if (!model) return missing("model");
  if (!out_engine) return missing("out_engine");
  lathe_engine_options o;
  lathe_engine_options_init(&o);
  if (Status s = takeOptions(options, o); !s.ok()) return report(s);
  EngineOptions e;
  e.threads = o.threads;
  e.pin = o.pin_threads != 0;
  e.contextTokens = o.context;
  e.maxSequences = o.max_sequences;
  e.kvTokens = o.kv_tokens;
  e.memoryBudget = o.memory_budget;
  auto engine = Engine::create(model->artifact, e);
  if (!engine.ok()) return report(engine.status());
  *out_engine = new lathe_engine{model->text, *std::move(engine)};
  return LATHE_OK;
}

void lathe_engine_release(lathe_engine *engine) { delete engine; }

lathe_status lathe_sequence_open(lathe_engine *engine, lathe_sequence *out_sequence) {
  if (!engine) return missing("engine");
  if (!out_sequence) return missing("out_sequence");
  auto sequence = engine->engine->open();
  if (!sequence.ok()) return report(sequence.status());
  *out_sequence = *sequence;
  return LATHE_OK;
}

static lathe_status needSequence(const lathe_engine *engine, lathe_sequence sequence) {
  if (!engine) return missing("engine");
  if (engine->isOpen(sequence)) return LATHE_OK;
  return report(makeError(StatusCode::invalidArgument, "sequence %u is not open", sequence));
}

lathe_status lathe_sequence_close(lathe_engine *engine, lathe_sequence sequence) {
  if (lathe_status s = needSequence(engine, sequence); s != LATHE_OK) return s;
  engine->engine->close(sequence);
  return LATHE_OK;
}

lathe_status lathe_sequence_length(const lathe_engine *engine, lathe_sequence sequence, uint32_t *out_length) {
  if (lathe_status s = needSequence(engine, sequence); s != LATHE_OK) return s;
  if (!out_length) return missing("out_length");
  *out_length = engine->engine->length(sequence);
  return LATHE_OK;
}

lathe_status lathe_sequence_truncate(lathe_engine *engine, lathe_sequence sequence, uint32_t length,
                                     uint32_t *out_length) {
  if (lathe_status s = needSequence(engine, sequence); s != LATHE_OK) return s;
  uint32_t left = engine->engine->truncate(sequence, length);
  if (out_length) *out_length = left;
  return LATHE_OK;
}

lathe_status lathe_forward(lathe_engine *engine, const lathe_work *works, size_t work_count, lathe_row_fn logits,
                           lathe_row_fn hidden, void *user) {
  if (!engine) return missing("engine");
  if (!works && work_count) return missing("works");
  std::vector<Work> list;
  for (size_t i = 0; i < work_count; ++i) {
    if (!works[i].tokens && works[i].token_count) return missing("tokens");
    if (works[i].rows > LATHE_ROWS_ALL)
      return report(
          makeError(StatusCode::invalidArgument, "work %zu: expected rows in 0..2, found %u", i, works[i].rows));
    list.push_back(
        {works[i].sequence, {works[i].tokens, works[i].token_count}, static_cast<OutputRows>(works[i].rows)});
  }
  auto sink = [user](lathe_row_fn callback) -> RowSink {
    if (!callback) return nullptr;
    return [user, callback](size_t work, size_t token, std::span<const float> values) {
      if (callback(user, work, token, values.data(), values.size())) return Status();
      return Status(StatusCode::cancelled, "stopped by the callback");
    };
  };
  Status status = engine->engine->forward(list, sink(logits), sink(hidden));
  return status.ok() ? LATHE_OK : report(status);
}

void lathe_generate_options_init(lathe_generate_options *options) {
  *options = {};
  options->struct_size = sizeof *options;
  options->max_tokens = UINT32_MAX;
  options->top_p = 1;
  options->repetition_penalty = 1;
}

lathe_status lathe_generate(lathe_engine *engine, lathe_sequence sequence, const int32_t *prompt, size_t prompt_count,
                            const lathe_generate_options *options, lathe_token_fn on_token, void *user,
                            lathe_generate_result *out_result) {
  if (lathe_status s = needSequence(engine, sequence); s != LATHE_OK) return s;
  if (!prompt && prompt_count) return missing("prompt");
  lathe_generate_options o;
  lathe_generate_options_init(&o);
  if (Status s = takeOptions(options, o); !s.ok()) return report(s);
  if (o.stop_string_count && !o.stop_strings) return missing("stop_strings");
  if (o.stop_string_count && !engine->text)
    return fail(StatusCode::failedPrecondition, "stop strings need a tokenizer, which the artifact lacks");
  CompletionRequest request;
  request.sequence = sequence;
  request.prompt.assign(prompt, prompt + prompt_count);
  request.maxTokens = o.max_tokens;
  request.ignoreEnd = o.ignore_end != 0;
  SamplingParams &p = request.sampling;
  p.temperature = o.temperature;
  p.topK = o.top_k;
  p.topP = o.top_p;
  p.minP = o.min_p;
  p.repetitionPenalty = o.repetition_penalty;
  p.presencePenalty = o.presence_penalty;
  p.frequencyPenalty = o.frequency_penalty;
  p.seed = o.seed;
  for (size_t i = 0; i < o.stop_string_count; ++i)
    if (o.stop_strings[i]) request.stops.emplace_back(o.stop_strings[i]);
  if (on_token)
    request.onPiece = [&](int32_t id, std::string_view text) {
      return on_token(user, id, engine->text ? text.data() : nullptr, text.size()) != 0;
    };
  GenerateTimings timings;
  auto answers = complete(*engine->engine, engine->text.get(), {&request, 1}, &timings);
  if (!answers.ok()) return report(answers.status());
  const Completion &answer = (*answers)[0];
  if (!answer.error.ok()) return report(answer.error);
  if (!out_result) return LATHE_OK;
  lathe_generate_result result{};
  result.finish = static_cast<lathe_finish>(answer.reason);
  result.cached_tokens = answer.cachedTokens;
  result.new_tokens = answer.ids.size();
  result.prompt_seconds = timings.promptSeconds;
  result.decode_seconds = timings.decodeSeconds;
  return giveResult(result, out_result);
}

} // extern "C"
