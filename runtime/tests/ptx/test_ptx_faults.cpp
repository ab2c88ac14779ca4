// Kernels that do what PTX does not define are found, in every order; their corrections run.
#include "machine.hpp"

namespace {

using ptx::faults;
using ptx::kernel_of;
using ptx::runs_well;

std::string with_box(const std::string& lines) {
  return kernel_of(
      ".shared .align 16 .b8 box[256];\nmov.u32 %r2, box;\nmad.lo.u32 %r1, %r0, 4, %r2;\n"
      "xor.b32 %r3, %r1, 128;\n" +
      lines);
}

void places() {
  faults(kernel_of("ld.global.u32 %r1, [%rd1+256];"), "outside of any allocation");
  faults(kernel_of("st.global.u32 [%rd0+-4], %r0;"), "outside of any allocation");
  faults(kernel_of("ld.global.u32 %r1, [%rd1+2];"), "not aligned");
  faults(kernel_of("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+8];"), "not aligned");
  faults(with_box("st.shared.u32 [%r2+256], %r0;"), "outside of any allocation");
  faults(with_box("ld.shared.u32 %r4, [%r1];"), "that nobody has written");
  faults(kernel_of(".local .align 4 .b8 own[16];\nmov.u32 %r1, own;\nst.local.u32 [%r1], %r0;\n"
                   "ld.local.u32 %r2, [%r1+4];"),
         "that nobody has written");
  runs_well(
      kernel_of(".local .align 4 .b8 own[16];\nmov.u32 %r1, own;\nst.local.u32 [%r1], %r0;\n"
                "ld.local.u32 %r2, [%r1];"));
  faults(kernel_of("ld.param.u32 %r1, [in+8];"), "behind its parameters");
  faults(kernel_of("trap;"), "traps");
}

// A lane writes what another warp reads.
void races_in_shared_memory() {
  const std::string write = "st.shared.u32 [%r1], %r0;\n", read = "ld.shared.u32 %r4, [%r3];\n";
  runs_well(with_box(write + "bar.sync 0;\n" + read), {1, 64});
  const std::string start = write + "bar.sync 0;\n" + read;
  faults(with_box(start + write), "a race", {1, 64});  // a write after another's read
  runs_well(with_box(start + "bar.sync 0;\n" + write), {1, 64});
  faults(with_box("st.shared.u32 [%r2], %r0;\n"), "a race", {1, 64});  // all write one word
  faults(with_box("st.shared.u32 [%r2], 1;\n"), "a race", {1, 2});     // the same value too
}

// Lanes of one warp are ordered by bar.warp.sync, not by a shuffle.
void races_in_a_warp() {
  const std::string write = "st.shared.u32 [%r1], %r0;\n",
                    read = "xor.b32 %r3, %r1, 4;\nld.shared.u32 %r4, [%r3];\n";
  const std::string prepare = "xor.b32 %r3, %r1, 4;\nst.shared.u32 [%r1], 1;\nbar.sync 0;\n";
  faults(with_box(prepare + write + read), "a race");
  faults(with_box(prepare + write + "shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;\n" + read), "a race");
  runs_well(with_box(prepare + write + "bar.warp.sync -1;\n" + read));
  // Another warp's lanes are not ordered by it.
  const std::string far = "ld.shared.u32 %r4, [%r5];\n", other = "xor.b32 %r5, %r1, 128;\n";
  faults(with_box(prepare + other + write + "bar.warp.sync -1;\n" + far), "a race", {1, 64});
}

void races_in_global_memory() {
  faults(kernel_of("st.global.u32 [%rd0], %r0;"), "a race", {2, 1});
  runs_well(kernel_of("atom.global.add.u32 %r1, [%rd0], 1;"), {4, 64});
  faults(kernel_of("atom.global.add.u32 %r1, [%rd0], 1;\nld.global.u32 %r2, [%rd0];"), "a race",
         {4, 64});
  runs_well(
      kernel_of("atom.global.add.u32 %r1, [%rd0], 1;\nld.relaxed.gpu.global.u32 %r2, [%rd0];"),
      {4, 64});
  // Bytes of one word by different threads.
  runs_well(
      kernel_of("cvt.u64.u32 %rd4, %r0;\nadd.s64 %rd5, %rd0, %rd4;\nst.global.u8 [%rd5], %r0;"),
      {1, 64});
}

// The last block reads what the others wrote, if it may know of it. The counter starts at
// 0xdeadbeef, as all that a test writes to.
void last_block() {
  const auto text = [](const std::string& before, const std::string& order,
                       const std::string& after) {
    return kernel_of(
        "mov.u32 %r1, %ctaid.x;\nmad.wide.u32 %rd4, %r1, 4, %rd0;\n"
        "st.global.u32 [%rd4+16], %r1;\n" +
        before + "atom." + order + "global.add.u32 %r2, [%rd0], 1;\n" + after +
        "setp.ne.u32 %p1, %r2, 0xdeadbef1;\n@%p1 ret;\nld.global.u32 %r4, [%rd0+16];\n"
        "ld.global.u32 %r5, [%rd0+20];\nld.global.u32 %r6, [%rd0+24];");
  };
  faults(text("", "", ""), "a race", {3, 1});
  runs_well(text("membar.gl;\n", "", "membar.gl;\n"), {3, 1});
  runs_well(text("", "acq_rel.gpu.", ""), {3, 1});
  faults(text("membar.gl;\n", "", ""), "a race", {3, 1});
}

void barriers() {
  faults(kernel_of("setp.lt.u32 %p1, %r0, 40;\n@%p1 bar.sync 0;"), "threads wait for others",
         {1, 64});
  faults(kernel_of("setp.lt.u32 %p1, %r0, 32;\n@%p1 ret;\nbar.sync 0;"), "32 of 64 have ended",
         {1, 64});
  faults(
      kernel_of("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra $a;\nbar.sync 0;\nbra $b;\n$a:\nbar.sync 0;\n"
                "$b:"),
      "different barriers", {1, 64});
  runs_well(kernel_of("setp.lt.u32 %p1, %r0, 7;\nbar.red.popc.u32 %r1, 0, %p1;\n"
                      "setp.ne.u32 %p2, %r1, 7;\n@%p2 trap;\nbar.red.or.pred %p3, 0, %p1;\n"
                      "@!%p3 trap;\nbar.red.and.pred %p4, 0, %p1;\n@%p4 trap;"),
            {3, 64});
}

void masks() {
  const std::string third = "setp.lt.u32 %p1, %r0, 10;\n";
  faults(kernel_of(third + "@%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;"), "wait for others");
  runs_well(kernel_of(third + "@%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0x3ff;"));
  faults(kernel_of("shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;"), "does not name its own lane");
  faults(kernel_of(third + "@%p1 shfl.sync.bfly.b32 %r1, %r0, 16, 31, 0x3ff;"),
         "from a lane that its mask excludes");
  faults(kernel_of(third + "@%p1 ret;\nvote.sync.ballot.b32 %r1, %p1, -1;"), "have ended");
  // Both sides of a branch meet at one shuffle each, with the lanes that come there.
  runs_well(kernel_of(third +
                      "@%p1 bra $a;\nvote.sync.ballot.b32 %r1, %p1, 0xfffffc00;\nbra $b;\n"
                      "$a:\nvote.sync.ballot.b32 %r1, %p1, 0x3ff;\n$b:\nbar.warp.sync -1;"));
}

void copies() {
  const auto text = [](const std::string& rest) {
    return kernel_of(
        ".shared .align 16 .b8 box[512];\nmov.u32 %r1, box;\n"
        "mad.lo.u32 %r2, %r0, 4, %r1;\n"
        "cp.async.ca.shared.global [%r2], [%rd3], 4;\ncp.async.commit_group;\n" +
        rest);
  };
  faults(text("ld.shared.u32 %r3, [%r2];"), "that an unfinished cp.async writes");
  runs_well(text("cp.async.wait_group 0;\nld.shared.u32 %r3, [%r2];"));
  faults(text("cp.async.wait_group 1;\nld.shared.u32 %r3, [%r2];"), "unfinished cp.async");
  const std::string other = "xor.b32 %r4, %r2, 4;\nld.shared.u32 %r3, [%r4];\n";
  faults(text("cp.async.wait_all;\n" + other), " ", {1, 64});
  runs_well(text("cp.async.wait_all;\nbar.sync 0;\n" + other), {1, 64});
  // The next copy into a stage that others still read.
  faults(text("cp.async.wait_all;\nbar.sync 0;\n" + other +
              "cp.async.ca.shared.global [%r2], [%rd3], 4;"),
         "a race", {1, 64});
}

void launches() { faults(kernel_of(""), "cannot run as", {1, 2048}); }

}  // namespace

int main() {
  places();
  races_in_shared_memory();
  races_in_a_warp();
  races_in_global_memory();
  last_block();
  barriers();
  masks();
  copies();
  launches();
  return 0;
}
