//! What a recording says of the GPU that it was made on, without naming it.

use serde::Serialize;
use stalloc_trace::{Frame, Request, Trace};

/// A kind of GPU, as far as PyTorch's allocator is asked for different memory on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuClass {
    /// Compute capability 9.0.
    Hopper,
    /// Any other.
    Other,
}

impl GpuClass {
    /// The sizes of the workspace that PyTorch takes for each handle and stream of cuBLAS, bytes.
    const WORKSPACES: [(GpuClass, u64); 2] = [(GpuClass::Other, 8_519_680), (GpuClass::Hopper, 33_554_432)];

    /// What a recording's workspaces say. 8.125 MiB are asked for by nothing else; 32 MiB count where the stack names cuBLAS.
    pub(crate) fn of(trace: &Trace) -> Option<GpuClass> {
        let is_workspace = |request: &Request, class, size| {
            let of_cublas = |frame: &Frame| trace.string(frame.function).contains("cublas");
            request.size == size && (class == GpuClass::Other || trace.stacks.get(request.stack).iter().any(of_cublas))
        };
        let found = |&&(class, size): &&(GpuClass, u64)| trace.requests.iter().any(|r| is_workspace(r, class, size));
        GpuClass::WORKSPACES.iter().find(found).map(|&(class, _)| class)
    }

    /// For people, with the evidence.
    pub const fn text(self) -> &'static str {
        match self {
            GpuClass::Hopper => "Hopper (H100, H200, GH200, H20): cuBLAS workspaces of 32 MiB",
            GpuClass::Other => "not a Hopper: cuBLAS workspaces of 8.125 MiB, as on A100, RTX 4090 or B200",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stalloc_trace::{RawEvent, TraceBuilder};

    fn asked_for(size: u64, function: &str) -> Trace {
        let mut builder = TraceBuilder::new(0);
        let (file, function) = (builder.string("blas.cpp"), builder.string(function));
        let stack = builder.stack(&[Frame { file, function, line: 1 }]);
        builder.push(RawEvent::Alloc { address: 512, size, stream: 0, stack }, None);
        builder.finish()
    }

    #[test]
    fn a_workspace_of_eight_and_an_eighth_mebibytes_is_of_any_other_gpu_than_hopper() {
        assert_eq!(GpuClass::of(&asked_for(8_519_680, "unknown")), Some(GpuClass::Other));
        assert_eq!(GpuClass::of(&asked_for(8_519_168, "unknown")), None);
    }

    #[test]
    fn thirty_two_mebibytes_are_a_workspace_where_the_stack_names_cublas() {
        assert_eq!(GpuClass::of(&asked_for(33_554_432, "gemm_internal_cublas<float>")), Some(GpuClass::Hopper));
        assert_eq!(GpuClass::of(&asked_for(33_554_432, "train")), None);
    }
}
