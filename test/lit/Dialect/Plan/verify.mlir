// plan-verify finds what the planner must never do.
// RUN: lathe-opt %s --plan-verify -split-input-file -verify-diagnostics

// expected-error @below {{expected a plan.program}}
module {
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 2048 hidden_at 0 stride 16 logits_at 1024 stride 16 {
  // expected-error @below {{buffer 'a' overlaps live buffer 'b'}}
  plan.buffer @a at 0 bytes 1024 live 0 to 3
  // expected-note @below {{at 512, 1024 bytes, live 3 to 4}}
  plan.buffer @b at 512 bytes 1024 live 3 to 4
}

// -----

// expected-error @below {{expected an arena of 1024 bytes (the largest end of a buffer), found 2048}}
plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 2048 hidden_at 0 stride 16 logits_at 0 stride 16 {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
  plan.buffer @b at 0 bytes 1024 live 2 to 3
}

// -----

// expected-error @below {{rows of the draft end at 3072, outside the arena of 1024 bytes}}
plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 attributes {draftInputOffset = 2048, draftInputStride = 16} {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
}

// -----

// expected-error @below {{results end at 1088, outside the arena of 1024 bytes}}
plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 attributes {draftLogitsStride = 16, draftMoreLogits = array<i64: 64>} {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
}

// -----

// expected-error @below {{choices end at 2048, outside the arena of 1024 bytes}}
plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 attributes {choicesOffset = 1024, choicesStride = 16} {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
}

// -----

// expected-error @below {{embeddings end at 2048, outside the arena of 1024 bytes}}
plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 attributes {embeddingOffset = 1024, embeddingStride = 16} {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
}

// -----

// expected-error @below {{results end at 3072, outside the arena of 1024 bytes}}
plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 2048 stride 16 {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 {
  plan.kernel @k family "norm" {} {}
  // expected-note @below {{live 0 to 1}}
  plan.buffer @a at 0 bytes 1024 live 0 to 1
  plan.entry "step" {
    plan.bucket 16 {
      // expected-error @below {{uses buffer 'a' at time 2, outside its lifetime}}
      plan.launch "x" @k [@a] + [0] items 1 x 1 rows 1 share 0 barrier true time 2 cost 0, 0, 0
    }
  }
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 {
  plan.kernel @k family "norm" {} {}
  plan.buffer @a at 0 bytes 1024 live 0 to 1
  plan.entry "step" {
    plan.bucket 16 {
      // expected-error @below {{offset 1024 is outside the 1024 bytes of @a}}
      plan.launch "x" @k [@a] + [1024] items 1 x 1 rows 1 share 0 barrier true time 1 cost 0, 0, 0
    }
  }
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 {
  plan.buffer @a at 0 bytes 1024 live 0 to 1
  plan.entry "step" {
    plan.bucket 16 {
      // expected-error @below {{expected a kernel named @k}}
      plan.launch "x" @k [@a] + [0] items 1 x 1 rows 1 share 0 barrier true time 1 cost 0, 0, 0
    }
  }
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 {
  // expected-error @below {{expected an aligned offset, a positive size and a lifetime, found 32, 1024, 0 to 1}}
  plan.buffer @a at 32 bytes 1024 live 0 to 1
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 {
  plan.kernel @k family "norm" {} {}
  plan.buffer @a at 0 bytes 1024 live 0 to 1
  plan.entry "step" {
    plan.bucket 16 {
      // expected-error @below {{expected one offset for each of 1 arguments, found 2}}
      plan.launch "x" @k [@a] + [0, 0] items 1 x 1 rows 1 share 0 barrier true time 1 cost 0, 0, 0
    }
  }
}

// -----

plan.program max_rows 16 max_out_rows 16 max_seq 64 vocabulary 16 hidden 16 arena 1024 hidden_at 0 stride 16 logits_at 0 stride 16 {
  plan.kernel @k family "norm" {} {}
  plan.buffer @a at 0 bytes 1024 live 0 to 1
  plan.entry "step" {
    plan.bucket 16 {
      // expected-error @below {{expected a buffer, weight or KV group, found @nothing}}
      plan.launch "x" @k [@nothing] + [0] items 1 x 1 rows 1 share 0 barrier true time 1 cost 0, 0, 0
    }
  }
}
