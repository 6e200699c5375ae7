//! A step as a trial saw it -> what is spilled, and when.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stalloc_spill::{SavedTensor, SpillProblem, StepMoment};

/// Bytes of the host's memory that can be had now; none if the system does not say.
#[pyfunction]
pub fn host_memory_left() -> Option<u64> {
    stalloc_runtime::host_memory_left()
}

/// SavedTensor, moment of its release, moment of the copy back, offset in host memory.
type SpilledTensor = (usize, usize, usize, u64);

/// Plans what waits in host memory. `moments`: nanoseconds up to the next, and largest live bytes meanwhile with every candidate away;
/// `candidates`: bytes, and the moments at which each is packed, held by nothing else, and needed. Returns the victims and their host
/// bytes.
#[pyfunction]
pub fn spill_plan(
    py: Python<'_>,
    moments: Vec<(u64, u64)>,
    candidates: Vec<(u64, usize, usize, usize)>,
    capacity: u64,
    host: u64,
    link: u64,
) -> PyResult<(Vec<SpilledTensor>, u64)> {
    let moments = moments.into_iter().map(|(nanoseconds, live)| StepMoment { nanoseconds, live }).collect();
    let candidates = candidates.into_iter();
    let candidates =
        candidates.map(|(bytes, packed, gone, needed)| SavedTensor { bytes, packed, gone, needed }).collect();
    let problem = SpillProblem { moments, candidates, capacity, host, out_rate: link, in_rate: link };
    let plan = py.detach(|| stalloc_spill::plan(&problem)).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let victims = plan.victims.iter().map(|one| (one.candidate, one.release, one.copy_in, one.offset)).collect();
    Ok((victims, plan.host))
}
