//===- TraceWriter.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/TraceWriter.h"

namespace lathe::runtime {

void TraceWriter::header(const Program &program, std::span<const uint32_t> blocks, const SchedulerOptions &o) {
  buffer += "lathe-trace 5\n";
  line('O').number(o.maxSequences).number(o.contextTokens).number(o.stepTokens).number(o.maxResults);
  number(o.maxQueued).number(o.maxQueuedTokens).number(static_cast<uint64_t>(o.policy));
  number(static_cast<uint64_t>(o.preemption)).number(o.prefixCache).number(o.savedKvBytes).real(o.saveBytesPerSecond);
  real(o.itlTarget).real(o.agingSeconds).number(o.maxPassedOver).real(o.defaultTtft).number(o.learnCost).number(o.freeDrafts).bytes(o.model);
  end();
  line('M');
  for (uint64_t value : o.cost.state())
    number(value);
  end();
  for (size_t g = 0; g < blocks.size(); ++g) {
    const KVGroup &group = program.kvGroups[g];
    line('G')
        .number(group.kind)
        .number(group.window)
        .number(group.pageTokens)
        .number(group.blockBytes)
        .number(blocks[g]);
    end();
  }
}

void TraceWriter::add(double now, const ScheduledRequest &r, Reason refusal) {
  line('A').real(now).number(r.id).number(r.choices).number(r.maxTokens).number(static_cast<uint64_t>(r.promptRows));
  integer(r.priority).real(r.deadline).real(r.ttftTarget).real(r.tpotTarget).bytes(r.tenant).bytes(r.cacheSalt);
  bytes(r.adapter).number(r.prompt.size());
  for (int32_t token : r.prompt)
    integer(token);
  end();
  line('a').number(refusal == Reason::none);
  if (refusal != Reason::none) word(toString(refusal));
  end();
}

void TraceWriter::ends(std::span<const PlannedEnd> list) {
  for (const PlannedEnd &e : list)
    line('e').number(e.request).number(e.choice).word(toString(e.end)).word(toString(e.reason)).number(e.last).end();
}

void TraceWriter::plan(double now, const StepPlan &plan) {
  line('P').real(now).end();
  ends(plan.ended);
  for (const PlannedPreemption &p : plan.preempted)
    line('v')
        .number(p.request)
        .number(p.choice)
        .number(p.row)
        .number(p.saved)
        .number(p.tokens)
        .word(toString(p.reason))
        .end();
  for (const KVTransfer &t : plan.saves)
    line('s').number(t.group).integer(t.block).number(t.slot).end();
  for (const PlannedAdmission &a : plan.admitted)
    line('i').number(a.request).number(a.choice).number(a.row).number(a.cachedTokens).word(toString(a.reason)).end();
  for (const KVCopy &c : plan.copies)
    line('c').number(c.group).integer(c.from).integer(c.to).end();
  for (const KVTransfer &t : plan.restores)
    line('r').number(t.group).integer(t.block).number(t.slot).end();
  for (const StepPiece &p : plan.pieces) {
    line('p').number(p.request).number(p.choice).number(p.row).number(p.first).number(p.tokens).number(p.resultFrom);
    number(p.samples).word(toString(p.reason));
    if (p.drafts) number(p.drafts);
    end();
  }
  line('t').number(plan.rows).real(plan.wakeAt).end();
}

void TraceWriter::commit(double now, double seconds, std::span<const StepPiece> pieces,
                         std::span<const PieceResult> results) {
  line('K').real(now).real(seconds).number(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    number(results[i].failed).number(results[i].choices.size());
    for (const ChoiceResult &c : results[i].choices)
      integer(c.token).number(c.ended ? 1 + static_cast<uint64_t>(c.reason) : 0);
  }
  end();
}

} // namespace lathe::runtime
