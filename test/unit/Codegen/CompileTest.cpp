//===- CompileTest.cpp - objects, links, and their errors -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "KernelLibrary.h"
#include "llvm/Object/ELFObjectFile.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::test;
using artifact::Variant;

namespace {

KernelJob matmulJob(const std::string &symbol, int64_t n) {
  MatmulParams p;
  p.n = n;
  p.k = 64;
  p.outStride = rowStride(n);
  return {symbol, [p](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitMatmul(m, s, p, t); }};
}

TEST(Compile, NamesVariants) {
  EXPECT_STREQ(variantName(Variant::avx2), "avx2");
  EXPECT_STREQ(variantName(Variant::avx512vnni), "avx512vnni");
  EXPECT_STREQ(variantName(Variant::avx512bf16), "avx512bf16");
  EXPECT_STREQ(variantName(Variant::amx), "amx");
  EXPECT_STREQ(variantName(Variant::none), "none");
  EXPECT_FALSE(hostSupports({Variant::none}));
  for (X86Target t : hostTargets())
    EXPECT_LE(t.variant, hostVariant());
}

TEST(Compile, SharesCodeOnlyWithVariantsThatRunIt) {
  for (X86Target t : hostTargets())
    for (KernelUse use : {KernelUse{}, KernelUse{.bf16 = true}, KernelUse{.dots = true}, KernelUse{true, true}}) {
      EXPECT_LE(emittedVariant(t.variant, use), t.variant);
      EXPECT_TRUE(hostSupports({emittedVariant(t.variant, use)}));
    }
  EXPECT_EQ(emittedVariant(Variant::amx), Variant::avx512vnni);
  EXPECT_EQ(emittedVariant(Variant::amx, {.bf16 = true}), Variant::avx512bf16);
  EXPECT_EQ(emittedVariant(Variant::amx, {.dots = true}), Variant::amx);
  EXPECT_EQ(emittedVariant(Variant::avx512bf16, {.dots = true}), Variant::avx512vnni);
}

TEST(Compile, HasCodeOfItsOwnForKernelsWithBf16Activations) {
  KernelJob bf16{"b", [](mlir::ModuleOp m, llvm::StringRef s, X86Target t) {
                   MatmulParams p;
                   p.type = StorageType::bf16, p.act = ActFormat::bf16, p.n = 16, p.k = 32, p.outStride = 16;
                   return emitMatmul(m, s, p, t);
                 }, {.bf16 = true}};
  VariantBuilder builder({matmulJob("i", 16)}, 1);
  Result<std::string> vnni = builder.build(Variant::avx512vnni), shared = builder.build(Variant::avx512bf16);
  ASSERT_TRUE(vnni.ok() && shared.ok());
  EXPECT_TRUE(*vnni == *shared);
  VariantBuilder mixed({matmulJob("i", 16), bf16}, 1);
  vnni = mixed.build(Variant::avx512vnni), shared = mixed.build(Variant::avx512bf16);
  ASSERT_TRUE(vnni.ok() && shared.ok());
  EXPECT_FALSE(*vnni == *shared);
  // What two variants share, and what only one has, is what each alone would have.
  EXPECT_TRUE(*vnni == *buildCode({matmulJob("i", 16), bf16}, {Variant::avx512vnni}));
  std::vector<std::string> apart = *compileKernels({matmulJob("i", 16)}, {Variant::avx512vnni});
  apart.push_back((*compileKernels({bf16}, {Variant::avx512bf16}))[0]);
  EXPECT_TRUE(*shared == *linkObjects(apart));
}

TEST(Compile, OutputDependsOnTheInputOnly) {
  std::vector<KernelJob> jobs{matmulJob("first", 16), matmulJob("second", 32), matmulJob("third", 48)};
  Result<std::string> one = buildCode(jobs, {Variant::avx512vnni}, 1), two = buildCode(jobs, {Variant::avx512vnni}, 2);
  ASSERT_TRUE(one.ok()) << one.status().message();
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_TRUE(*one == *two);
}

TEST(Compile, SharedObjectNeedsNothing) {
  Result<std::string> code = buildCode({matmulJob("kernel", 16)}, {Variant::avx2});
  ASSERT_TRUE(code.ok()) << code.status().message();
  auto file = llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(*code, "code"));
  ASSERT_TRUE(bool(file));
  auto *elf = llvm::dyn_cast<llvm::object::ELF64LEObjectFile>(file->get());
  ASSERT_TRUE(elf);
  std::vector<std::string> defined;
  for (const llvm::object::ELFSymbolRef &s : elf->getDynamicSymbolIterators()) {
    llvm::Expected<uint32_t> flags = s.getFlags();
    llvm::Expected<llvm::StringRef> name = s.getName();
    ASSERT_TRUE(bool(flags) && bool(name));
    EXPECT_FALSE(*flags & llvm::object::BasicSymbolRef::SF_Undefined) << name->str();
    defined.push_back(name->str());
  }
  EXPECT_EQ(defined, std::vector<std::string>{"kernel"});
  auto entries = elf->getELFFile().dynamicEntries();
  ASSERT_TRUE(bool(entries));
  for (const auto &d : *entries)
    EXPECT_NE(d.d_tag, llvm::ELF::DT_NEEDED);
}

TEST(Compile, ReportsTheFirstKernelThatFails) {
  Result<std::string> code =
      buildCode({matmulJob("good", 16), matmulJob("bad", 0), matmulJob("worse", -1)}, {Variant::avx2}, 2);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), StatusCode::unsupported);
  EXPECT_EQ(code.status().message(), "kernel 'bad' for avx2: matmul 'bad': expected positive n and k, found 0 and 64");
}

TEST(Compile, RefusesNoVariant) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  EXPECT_EQ(compileObject(*module, {Variant::none}).status().message(),
            "expected an x86 code variant to compile for, found 'none'");
}

TEST(Compile, ReportsWhatCannotBeTranslated) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  mlir::OperationState state(mlir::UnknownLoc::get(&context), "nobody.knows");
  module->getBody()->push_back(mlir::Operation::create(state));
  Status s = compileObject(*module, {Variant::avx2}).status();
  EXPECT_EQ(s.code(), StatusCode::internal);
  EXPECT_EQ(s.message().rfind("cannot compile kernels for avx2: translation failed: ", 0), 0u) << s.message();
}

TEST(Compile, LinkErrorsDoNotSpoilTheNextLink) {
  Status s = linkObjects({std::string("not an object")}).status();
  EXPECT_EQ(s.message().rfind("linking 1 objects failed: ", 0), 0u) << s.message();
  EXPECT_TRUE(buildCode({matmulJob("kernel", 16)}, {Variant::avx2}).ok());
}

} // namespace
