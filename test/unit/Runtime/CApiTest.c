/*===- CApiTest.c - lathe.h from C ----------------------------------------===*
 * Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
 *===----------------------------------------------------------------------===*/
#include <lathe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, lathe_error_message());           \
      ++failures;                                                                                                      \
    }                                                                                                                  \
  } while (0)
#define EXPECT_ERROR(call, code, text)                                                                                 \
  do {                                                                                                                 \
    EXPECT((call) == (code));                                                                                          \
    EXPECT(strstr(lathe_error_message(), text) != NULL);                                                               \
  } while (0)

struct rows {
  size_t calls, stop_after;
  float first[4][50];
};

static int take_row(void *user, size_t work, size_t token, const float *values, size_t count) {
  struct rows *rows = user;
  (void)work;
  (void)token;
  if (rows->calls < 4) memcpy(rows->first[rows->calls], values, (count < 50 ? count : 50) * sizeof(float));
  return ++rows->calls != rows->stop_after;
}

struct answer {
  int32_t ids[64];
  size_t count, length, stop_after;
};

static int take_token(void *user, int32_t id, const char *text, size_t length) {
  struct answer *answer = user;
  (void)text;
  answer->length += length;
  if (id >= 0 && answer->count < 64) answer->ids[answer->count++] = id;
  return answer->count != answer->stop_after;
}

static void test_text(lathe_model *model) {
  int32_t ids[16];
  char text[16];
  size_t count = 0;
  EXPECT(lathe_tokenize(model, "abc", 3, LATHE_ADD_SPECIAL, ids, 16, &count) == LATHE_OK && count == 3);
  EXPECT(ids[0] == 0 && ids[1] == 1 && ids[2] == 2);
  EXPECT(lathe_tokenize(model, "<|end|>", 7, LATHE_PARSE_SPECIAL, ids, 16, &count) == LATHE_OK && count == 1);
  EXPECT(lathe_tokenize(model, "<|end|>", 7, 0, ids, 16, &count) == LATHE_OK && count == 7);
  EXPECT_ERROR(lathe_tokenize(model, "abc", 3, 0, NULL, 0, &count), LATHE_RESOURCE_EXHAUSTED,
               "the result has 3 elements, the buffer 0");
  EXPECT(count == 3);
  EXPECT(lathe_detokenize(model, ids, 7, 0, text, sizeof text, &count) == LATHE_OK && count == 7);
  EXPECT(memcmp(text, "<|end|>", 7) == 0);
  EXPECT_ERROR(lathe_tokenize(model, NULL, 3, 0, ids, 16, &count), LATHE_INVALID_ARGUMENT, "'text' must not be NULL");
  EXPECT_ERROR(lathe_chat(model, "{}", 2, 0, ids, 16, &count), LATHE_INVALID_ARGUMENT, "expected a JSON array");
}

static void test_sequences(lathe_engine *engine) {
  lathe_sequence a, b, c;
  uint32_t length = 99;
  EXPECT(lathe_sequence_open(engine, &a) == LATHE_OK);
  EXPECT(lathe_sequence_open(engine, &b) == LATHE_OK);
  EXPECT_ERROR(lathe_sequence_open(engine, &c), LATHE_RESOURCE_EXHAUSTED, "2 sequences are open");

  /* All rows at once and row by row give the same bits. */
  const int32_t tokens[4] = {5, 6, 7, 8};
  lathe_work whole = {a, LATHE_ROWS_ALL, tokens, 4};
  struct rows together = {0}, single = {0}, hidden = {0};
  EXPECT(lathe_forward(engine, &whole, 1, take_row, NULL, &together) == LATHE_OK && together.calls == 4);
  for (int i = 0; i < 4; ++i) {
    lathe_work one = {b, LATHE_ROWS_LAST, tokens + i, 1};
    EXPECT(lathe_forward(engine, &one, 1, take_row, NULL, &single) == LATHE_OK);
  }
  EXPECT(memcmp(together.first, single.first, sizeof single.first) == 0);
  EXPECT(lathe_sequence_length(engine, a, &length) == LATHE_OK && length == 4);
  EXPECT(lathe_sequence_truncate(engine, a, 2, &length) == LATHE_OK && length == 2);
  lathe_work rest = {a, LATHE_ROWS_ALL, tokens + 2, 2};
  EXPECT(lathe_forward(engine, &rest, 1, NULL, take_row, &hidden) == LATHE_OK && hidden.calls == 2);
  hidden.stop_after = 3;
  EXPECT_ERROR(lathe_forward(engine, &rest, 1, NULL, take_row, &hidden), LATHE_CANCELLED, "stopped by the callback");
  rest.rows = 7;
  EXPECT_ERROR(lathe_forward(engine, &rest, 1, NULL, NULL, NULL), LATHE_INVALID_ARGUMENT, "expected rows in 0..2");
  EXPECT(lathe_sequence_close(engine, a) == LATHE_OK);
  EXPECT_ERROR(lathe_sequence_close(engine, a), LATHE_INVALID_ARGUMENT, "sequence 0 is not open");
  EXPECT(lathe_sequence_close(engine, b) == LATHE_OK);
}

static void test_generate(lathe_engine *engine) {
  lathe_sequence s;
  const int32_t prompt[3] = {1, 2, 3};
  const char *stops[] = {"no such text"};
  struct answer answer = {.stop_after = 0};
  lathe_generate_options options;
  lathe_generate_result result = {.struct_size = sizeof result};
  EXPECT(lathe_sequence_open(engine, &s) == LATHE_OK);
  lathe_generate_options_init(&options);
  options.max_tokens = 10;
  options.ignore_end = 1;
  options.stop_strings = stops;
  options.stop_string_count = 1;
  EXPECT(lathe_generate(engine, s, prompt, 3, &options, take_token, &answer, &result) == LATHE_OK);
  EXPECT(result.finish == LATHE_FINISH_LENGTH && result.new_tokens == 10 && answer.count == 10);
  struct answer again = {.stop_after = 4};
  EXPECT(lathe_generate(engine, s, prompt, 3, &options, take_token, &again, &result) == LATHE_OK);
  EXPECT(result.finish == LATHE_FINISH_CANCELLED && again.count == 4 && result.cached_tokens == 2);
  EXPECT(memcmp(answer.ids, again.ids, 4 * sizeof answer.ids[0]) == 0);
  options.struct_size = 0;
  EXPECT_ERROR(lathe_generate(engine, s, prompt, 3, &options, NULL, NULL, NULL), LATHE_INVALID_ARGUMENT,
               "call the _init function first");
  EXPECT_ERROR(lathe_generate(engine, s, prompt, 0, NULL, NULL, NULL, NULL), LATHE_INVALID_ARGUMENT,
               "expected a prompt of at least one token");
}

int main(int argc, char **argv) {
  lathe_model *model = NULL;
  lathe_engine *engine = NULL;
  EXPECT(argc == 2 && strcmp(lathe_version(), "0.1.0") == 0);
  EXPECT_ERROR(lathe_model_load("no such file", NULL, &model), LATHE_NOT_FOUND, "cannot open 'no such file'");
  EXPECT_ERROR(lathe_model_load(NULL, NULL, &model), LATHE_INVALID_ARGUMENT, "'path' must not be NULL");
  lathe_model_options load;
  lathe_model_options_init(&load);
  load.variant = "avx2";
  EXPECT(lathe_model_load(argv[1], &load, &model) == LATHE_OK);
  if (!model) return 1;
  lathe_model_info info = {.struct_size = sizeof info};
  EXPECT(lathe_model_get_info(model, &info) == LATHE_OK);
  EXPECT(info.vocabulary == 50 && info.max_context == 256 && info.has_tokenizer && strcmp(info.variant, "avx2") == 0);
  EXPECT(strlen(info.content_hash) == 32);
  info.struct_size = 0;
  EXPECT_ERROR(lathe_model_get_info(model, &info), LATHE_INVALID_ARGUMENT, "struct_size is 0");
  test_text(model);

  lathe_engine_options options;
  lathe_engine_options_init(&options);
  options.threads = 2;
  options.max_sequences = 2;
  options.context = 1000;
  EXPECT_ERROR(lathe_engine_create(model, &options, &engine), LATHE_INVALID_ARGUMENT,
               "expected a context of at most 256 tokens");
  options.context = 64;
  EXPECT(lathe_engine_create(model, &options, &engine) == LATHE_OK);
  lathe_model_release(model); /* the engine keeps what it needs */
  if (!engine) return 1;
  test_sequences(engine);
  test_generate(engine);
  lathe_engine_release(engine);
  lathe_engine_release(NULL);
  lathe_model_release(NULL);
  if (failures) fprintf(stderr, "%d expectations failed\n", failures);
  return failures != 0;
}
