/*===- lathe.h - run a compiled model from C ------------------------------===*
 * Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
 *
 * The whole interface of liblathe.so. C99; no other header or library is needed.
 *
 * Conventions
 * - Every function that can fail returns a lathe_status; its message is lathe_error_message(), per thread.
 * - Results come through parameters named out_..., which are last and are written on success only, except
 *   where said. None may be NULL unless said.
 * - Option structs are filled by their _init function first; later versions only append fields.
 * - Text is UTF-8 with an explicit length; no zero byte is needed behind it.
 *
 * Threads: a lathe_model is immutable and may be used by any number of threads. A lathe_engine and its
 * sequences may be used by one thread at a time. Engines share the process's worker threads and take turns.
 *
 * Lifetime: an engine keeps its model alive; either may be released first. Callbacks run on the calling thread
 * and must not call back into the same engine.
 *
 * An artifact holds native code: load only files that you would trust as a program.
 *===----------------------------------------------------------------------===*/
#ifndef LATHE_H
#define LATHE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "Lathe runs on Linux"
#endif
#define LATHE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lathe_status {
  LATHE_OK = 0,
  LATHE_INVALID_ARGUMENT = 1,    /* the request or the file is wrong */
  LATHE_NOT_FOUND = 2,           /* a named thing does not exist */
  LATHE_UNSUPPORTED = 3,         /* valid, but not possible here */
  LATHE_RESOURCE_EXHAUSTED = 4,  /* memory, KV cache, context, or a buffer of yours that is too small */
  LATHE_DATA_LOSS = 5,           /* a file is damaged or changed while in use */
  LATHE_FAILED_PRECONDITION = 6, /* wrong state, processor or format version */
  LATHE_CANCELLED = 7,           /* a callback asked to stop */
  LATHE_INTERNAL = 8             /* a bug of Lathe's own */
} lathe_status;

typedef struct lathe_model lathe_model;
typedef struct lathe_engine lathe_engine;
typedef uint32_t lathe_sequence;

/* The version of the library, "0.1.0". Static. */
LATHE_API const char *lathe_version(void);

/* Why the last failed call of this thread failed. Valid until the next call of this thread; never NULL. */
LATHE_API const char *lathe_error_message(void);

/*===- Models -------------------------------------------------------------===*/

typedef struct lathe_model_options {
  size_t struct_size;
  const char *variant; /* code to use: "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"; NULL: the best */
} lathe_model_options;
LATHE_API void lathe_model_options_init(lathe_model_options *options);

/* Maps and checks the artifact at |path|. |options| may be NULL. */
LATHE_API lathe_status lathe_model_load(const char *path, const lathe_model_options *options, lathe_model **out_model);

/* Frees the model once no engine uses it. NULL is allowed. */
LATHE_API void lathe_model_release(lathe_model *model);

typedef struct lathe_model_info {
  size_t struct_size;
  uint32_t vocabulary;    /* logits of a row */
  uint32_t hidden_size;   /* floats of a hidden state */
  uint32_t max_context;   /* tokens a sequence may have */
  uint32_t max_rows;      /* tokens computed in one step */
  int has_tokenizer;
  int has_chat_template;
  char variant[16];       /* code in use */
  char content_hash[33];  /* names the artifact's content */
} lathe_model_info;
/* Fills |out_info|, whose struct_size the caller has set to sizeof(lathe_model_info). */
LATHE_API lathe_status lathe_model_get_info(const lathe_model *model, lathe_model_info *out_info);

/*===- Text ---------------------------------------------------------------===
 * These write at most |capacity| elements and set |out_count| to the number needed in any case: with
 * LATHE_RESOURCE_EXHAUSTED, call again with that capacity. With capacity 0 the buffer may be NULL. */

enum {
  LATHE_ADD_SPECIAL = 1,   /* begin-of-text and the like around the text */
  LATHE_PARSE_SPECIAL = 2, /* control tokens written in the text become tokens; off: they stay text */
  LATHE_KEEP_SPECIAL = 4,  /* detokenize: control tokens are written out */
  LATHE_NO_GENERATION_PROMPT = 8 /* chat: do not open the model's answer */
};

LATHE_API lathe_status lathe_tokenize(const lathe_model *model, const char *text, size_t length, uint32_t flags,
                                      int32_t *ids, size_t capacity, size_t *out_count);

/* The bytes of |count| tokens: not always whole characters. */
LATHE_API lathe_status lathe_detokenize(const lathe_model *model, const int32_t *ids, size_t count, uint32_t flags,
                                        char *text, size_t capacity, size_t *out_count);

/* Tokens of a conversation, through the model's chat template. |messages|: JSON, an array of
 * {"role": "system" | "user" | "assistant", "content": "..."}. */
LATHE_API lathe_status lathe_chat(const lathe_model *model, const char *messages, size_t length, uint32_t flags,
                                  int32_t *ids, size_t capacity, size_t *out_count);

/*===- Engines and sequences ----------------------------------------------===*/

typedef struct lathe_engine_options {
  size_t struct_size;
  uint32_t threads;        /* 0: one per core */
  uint32_t context;        /* tokens of a sequence at most; 0: the model's maximum */
  uint32_t max_sequences;  /* open at one time; default 1 */
  int pin_threads;         /* bind each thread to a core */
  uint64_t kv_tokens;      /* of all sequences together; 0: context * max_sequences */
  uint64_t memory_budget;  /* bytes for KV cache and work space; 0: no limit */
} lathe_engine_options;
LATHE_API void lathe_engine_options_init(lathe_engine_options *options);

/* Allocates everything that runs will need. |options| may be NULL. */
LATHE_API lathe_status lathe_engine_create(lathe_model *model, const lathe_engine_options *options,
                                           lathe_engine **out_engine);

/* Frees the engine with its sequences. NULL is allowed. */
LATHE_API void lathe_engine_release(lathe_engine *engine);

/* A new, empty sequence. */
LATHE_API lathe_status lathe_sequence_open(lathe_engine *engine, lathe_sequence *out_sequence);

/* Frees a sequence and its part of the KV cache. */
LATHE_API lathe_status lathe_sequence_close(lathe_engine *engine, lathe_sequence sequence);

/* The number of tokens in a sequence. */
LATHE_API lathe_status lathe_sequence_length(const lathe_engine *engine, lathe_sequence sequence, uint32_t *out_length);

/* Drops tokens from |length| on. A model with sliding windows may have to drop all: |out_length| (may be NULL) is what is
 * left. */
LATHE_API lathe_status lathe_sequence_truncate(lathe_engine *engine, lathe_sequence sequence, uint32_t length,
                                               uint32_t *out_length);

/*===- Computing ----------------------------------------------------------===*/

enum { LATHE_ROWS_NONE = 0, LATHE_ROWS_LAST = 1, LATHE_ROWS_ALL = 2 };

/* Tokens to append to a sequence, and the rows whose results are wanted. */
typedef struct lathe_work {
  lathe_sequence sequence;
  uint32_t rows; /* LATHE_ROWS_... */
  const int32_t *tokens;
  size_t token_count;
} lathe_work;

/* Receives a row: token |token| of |work|. |values| is valid during the call. Return 0 to stop: the call then fails with
 * LATHE_CANCELLED. */
typedef int (*lathe_row_fn)(void *user, size_t work, size_t token, const float *values, size_t count);

/* Runs any mixture of prompts and single tokens of different sequences. Which tokens share a call shows in no bit of the
 * results. |logits| and |hidden| (states after the last layer) may be NULL. */
LATHE_API lathe_status lathe_forward(lathe_engine *engine, const lathe_work *works, size_t work_count,
                                     lathe_row_fn logits, lathe_row_fn hidden, void *user);

/* Receives a token and the text that may be shown now: whole characters that cannot be part of a stop string any more,
 * perhaps none (NULL and 0 without a tokenizer). What was held back comes last, with the id -1. Return 0 to stop. */
typedef int (*lathe_token_fn)(void *user, int32_t id, const char *text, size_t length);

typedef struct lathe_generate_options {
  size_t struct_size;
  uint32_t max_tokens;    /* default: until the model ends or the context is full */
  float temperature;      /* 0 (default): the likeliest token */
  int32_t top_k;          /* 0: all */
  float top_p;            /* default 1 */
  float min_p;            /* default 0 */
  float repetition_penalty; /* default 1 */
  float presence_penalty, frequency_penalty; /* default 0 */
  uint64_t seed;          /* default 0 */
  int ignore_end;         /* go on after the model's end tokens */
  const char *const *stop_strings; /* UTF-8, zero-terminated; need a tokenizer */
  size_t stop_string_count;
} lathe_generate_options;
LATHE_API void lathe_generate_options_init(lathe_generate_options *options);

typedef enum lathe_finish { LATHE_FINISH_STOP = 0, LATHE_FINISH_LENGTH = 1, LATHE_FINISH_CANCELLED = 2 } lathe_finish;

typedef struct lathe_generate_result {
  size_t struct_size;
  lathe_finish finish;     /* LENGTH: max_tokens or the context is reached */
  size_t cached_tokens;    /* of the prompt, already in the sequence */
  size_t new_tokens;
  double prompt_seconds, decode_seconds;
} lathe_generate_result;

/* Makes |sequence| hold |prompt| (what it has in common with it is kept) and generates. |options|, |on_token| and
 * |out_result| may be NULL; the caller sets out_result->struct_size. */
LATHE_API lathe_status lathe_generate(lathe_engine *engine, lathe_sequence sequence, const int32_t *prompt,
                                      size_t prompt_count, const lathe_generate_options *options,
                                      lathe_token_fn on_token, void *user, lathe_generate_result *out_result);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_H */
