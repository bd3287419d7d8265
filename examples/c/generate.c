/*===- generate.c - answer a question from C ------------------------------===*
 * Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
 *
 *   cc generate.c -I<prefix>/include -L<prefix>/lib -llathe -o generate
 *   ./generate model.lathe "Why is the sky blue?"
 *===----------------------------------------------------------------------===*/
#include <lathe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int show(void *user, int32_t id, const char *text, size_t length) {
  (void)user;
  (void)id;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return 1; /* go on */
}

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, lathe_error_message());
  return 1;
}

/* {"role": "user", "content": question} as JSON; the caller frees it. */
static char *message(const char *question) {
  const char *begin = "[{\"role\": \"user\", \"content\": \"", *end = "\"}]";
  char *json = malloc(strlen(begin) + 6 * strlen(question) + strlen(end) + 1), *at = json;
  if (!json) return NULL;
  at += sprintf(at, "%s", begin);
  for (; *question; ++question) {
    if (*question == '"' || *question == '\\' || (unsigned char)*question < 32)
      at += sprintf(at, "\\u%04x", (unsigned)(unsigned char)*question);
    else
      *at++ = *question;
  }
  strcpy(at, end);
  return json;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s FILE.lathe QUESTION\n", argv[0]);
    return 2;
  }
  lathe_model *model;
  if (lathe_model_load(argv[1], NULL, &model) != LATHE_OK) return failed("load");
  lathe_engine *engine;
  if (lathe_engine_create(model, NULL, &engine) != LATHE_OK) return failed("engine");
  lathe_sequence sequence;
  if (lathe_sequence_open(engine, &sequence) != LATHE_OK) return failed("sequence");

  /* The question's tokens: ask for their number, then for them. */
  char *json = message(argv[2]);
  if (!json) return 1;
  size_t count = 0;
  lathe_status status = lathe_chat(model, json, strlen(json), 0, NULL, 0, &count);
  if (status != LATHE_OK && status != LATHE_RESOURCE_EXHAUSTED) return failed("chat");
  int32_t *ids = malloc(count * sizeof *ids);
  if (!ids || lathe_chat(model, json, strlen(json), 0, ids, count, &count) != LATHE_OK) return failed("chat");

  lathe_generate_options options;
  lathe_generate_options_init(&options);
  options.max_tokens = 200;
  lathe_generate_result result = {.struct_size = sizeof result};
  if (lathe_generate(engine, sequence, ids, count, &options, show, NULL, &result) != LATHE_OK)
    return failed("generate");
  printf("\n");
  fprintf(stderr, "%zu tokens in %.2f s\n", result.new_tokens, result.prompt_seconds + result.decode_seconds);

  free(ids);
  free(json);
  lathe_engine_release(engine);
  lathe_model_release(model);
  return 0;
}
