//! Graphs.

use super::end;
use crate::{
    errors::{INVALID_VALUE, SUCCESS, Status},
    execution::{Handle, cuda_major, execution},
    ffi::{In, Out},
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

exports! {
    fn cudaGraphCreate(place: Out<Handle>, _flags: c_uint) -> Status {
        place.set(execution().create_graph());
        SUCCESS
    }

    fn cudaGraphDestroy(graph: Handle) -> Status {
        end(execution().destroy_graph(graph))
    }

    fn cudaGraphClone(place: Out<Handle>, graph: Handle) -> Status {
        end((|| {
            let mut execution = execution();
            let graph = *execution.graph(graph)?;
            let clone = execution.create_graph();
            *execution.graph(clone)? = graph;
            place.set(clone);
            Ok(())
        })())
    }

    fn cudaGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> Status {
        let there = execution().graph(graph).map(|graph| graph.nodes);
        end(there.map(|there| {
            if nodes.is_null() {
                count.set(there as usize);
                return;
            }
            let asked = count.get().unwrap_or(0);
            for index in 0..asked {
                let node = if (index as u64) < there { graph + 1 + index as u64 } else { 0 };
                nodes.set_at(index, node);
            }
            count.set(asked.min(there as usize));
        }))
    }

    fn cudaGraphNodeGetDependencies(_node: Handle, _dependencies: Out<Handle>, third: Out<usize>, fourth: Out<usize>) -> Status {
        // Version 13 put the data of edges before the count.
        let count = if cuda_major() >= 13 { fourth } else { third };
        count.set(0);
        SUCCESS
    }

    fn cudaGraphAddNode(node: Out<Handle>, graph: Handle, _dependencies: In<Handle>, _third: u64, _fourth: u64, _parameters: *mut c_void) -> Status {
        end(execution().graph(graph).map(|found| {
            found.nodes += 1;
            node.set(graph + found.nodes);
        }))
    }

    // The arguments after the graph differ between versions; none is needed.
    fn cudaGraphInstantiate(place: Out<Handle>, graph: Handle) -> Status {
        end(execution().instantiate(graph).map(|executable| place.set(executable)))
    }

    fn cudaGraphInstantiateWithFlags(place: Out<Handle>, graph: Handle, _flags: c_ulonglong) -> Status {
        cudaGraphInstantiate(place, graph)
    }

    fn cudaGraphInstantiateWithParams(place: Out<Handle>, graph: Handle, _parameters: *mut c_void) -> Status {
        cudaGraphInstantiate(place, graph)
    }

    fn cudaGraphExecDestroy(executable: Handle) -> Status {
        end(execution().destroy_executable(executable))
    }

    fn cudaGraphLaunch(executable: Handle, stream: Handle) -> Status {
        end(execution().launch_graph(executable, stream))
    }

    fn cudaGraphExecUpdate(_executable: Handle, _graph: Handle, result: Out<c_int>) -> Status {
        result.set(0);
        SUCCESS
    }

    fn cudaDeviceGetGraphMemAttribute(_device: c_int, attribute: c_int, value: Out<u64>) -> Status {
        end(if (0..=3).contains(&attribute) {
            value.set(0);
            Ok(())
        } else {
            Err(INVALID_VALUE)
        })
    }
}
