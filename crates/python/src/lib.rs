//! Python module, C entry points and the C++ shim. No logic: what Python says is translated for the crates below.

mod departure;
mod entries;
mod files;
mod host;
mod observer;
mod private_folder;
mod read;
mod record;
mod serve;
mod settings;
mod sleep;
mod spill;
mod tracker;

use pyo3::prelude::*;

/// `stalloc._native`; `python/stalloc/_native.pyi` documents it for Python.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::departure::serve_on_departure;
    #[pymodule_export]
    use super::files::{format_bytes, plan_buffers, plan_file, plan_folder, redacted, simulate_file};
    #[pymodule_export]
    use super::host::host_log;
    #[pymodule_export]
    use super::observer::{
        answer_reads, computed_later, numbers_read, observe_operations, operation_reads, operation_reads_its_own,
        operations_counted,
    };
    #[pymodule_export]
    use super::private_folder::PyPrivateFolder;
    #[pymodule_export]
    use super::read::read_trace;
    #[pymodule_export]
    use super::record::{
        abandon, agrees, attach, detach, finish, forget_recent, has_new_peak, history, host_read, is_recording,
        late_stacks, leave_to_parent, log, mark_module_enter, mark_module_exit, mark_phase, mark_step_begin,
        mark_step_end, on_flush, peak_since, show_progress, stack_at, stack_of_failed, stacks, start, step_differs,
        wait_for_stacks,
    };

    #[pymodule_export]
    use super::serve::{
        serve_forbid_waits, serve_keep, serve_keep_in, serve_learn, serve_outcome, serve_plans, serve_prepare,
        serve_report, serve_solid, serve_solid_size, serve_step, serve_table, serve_unprepare, unknown_settings,
    };

    #[pymodule_export]
    use super::spill::{host_memory_left, spill_plan};

    #[pymodule_export]
    use super::sleep::{serve_asleep, serve_can_sleep, serve_sleep, serve_sleeps_at, serve_wake};

    /// What this module has for Python. Python's part, which has the same file, is of the same build if it is the same.
    const INTERFACE: &[u8] = include_bytes!("../../../python/stalloc/_native.pyi");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("interface", crc32fast::hash(INTERFACE))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
