#include <cstdio>
#include <new>

#include "base/error.h"
#include "base/parts/build.h"
#include "base/parts/library_exits.h"
#include "base/processes/child_guard.h"
#include "base/shown.h"
#include "base/signals/end_signals.h"
#include "base/signals/file_signals.h"
#include "base/threads/max_threads.h"
#include "base/threads/threads.h"
#include "cli/arguments/program.h"
#include "collectives/launcher_line.h"
#include "commit.h"
#include "ops/hardware_table.h"
#include "ops/op_info.h"
#include "startup.h"

namespace {

int run(int argc, char** argv) {
  try {
    temper::register_everything();
    temper::ops::check_hardware_tables(temper::ops::hardware_tables(), temper::ops::op_infos());
    if (temper::num_threads() > temper::kMaxThreads)
      temper::fail("[OMP_NUM_THREADS] is {}; expected at most {}", temper::num_threads(),
                   temper::kMaxThreads);
  } catch (const temper::Error& error) {
    std::fprintf(stderr, "temper: %s\n", temper::shown_message(error.what()).c_str());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "temper: %s (a defect of Temper or of a plug-in)\n",
                 temper::shown_message(error.what()).c_str());
    return 1;
  }
  temper::cli::Program program;
  temper::cli::add_train(program);
  temper::cli::add_generate(program);
  temper::cli::add_batch(program);
  temper::cli::add_compare_logprobs(program);
  temper::cli::add_chat(program);
  temper::cli::add_merge(program);
  temper::cli::add_data_inspect(program);
  temper::cli::add_rollouts_show(program);
  temper::cli::add_init(program);
  temper::cli::add_doctor(program);
  temper::cli::add_ops(program);
  temper::cli::add_verify_layout(program);
  temper::cli::add_plan(program);
  temper::cli::add_quantize(program);
  temper::cli::add_export(program);
  temper::cli::add_eval(program);
  temper::cli::add_weights_send(program);
  return program.run(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  temper::serve_as_guard(argc, argv);
  temper::end_on_signals();
  int code = static_cast<int>(temper::ErrorKind::kResources);
  try {
    temper::collectives::join_launcher();
    temper::set_commit(TEMPER_COMMIT);
    temper::handle_file_signals();
    temper::report_exits_of_libraries();
    code = run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "temper: out of memory\n");
  }
  temper::collectives::notify_launcher_end();
  temper::leave_exit_to_program();
  return code;
}
