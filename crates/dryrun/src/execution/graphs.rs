//! Graphs: a number of nodes, and how long they take.

use super::{Execution, Handle, UNKNOWN_WRITES, WORK, new_handle};
use crate::errors::{INVALID_HANDLE, Status};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Graphs that were made executable.
pub static INSTANTIATED: AtomicU64 = AtomicU64::new(0);

/// A CUDA graph of the stand-in: how many nodes it has, and how long they take, nanoseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Graph {
    /// How many pieces of work it stands for.
    pub nodes: u64,
    /// How long they take, nanoseconds.
    pub nanoseconds: u64,
}

impl Execution {
    /// A new, empty graph.
    pub fn create_graph(&mut self) -> Handle {
        let handle = new_handle();
        self.graphs.insert(handle, Graph::default());
        handle
    }

    /// A graph.
    pub fn graph(&mut self, handle: Handle) -> Result<&mut Graph, Status> {
        self.graphs.get_mut(&handle).ok_or(INVALID_HANDLE)
    }

    /// Destroys a graph.
    pub fn destroy_graph(&mut self, handle: Handle) -> Result<(), Status> {
        self.graphs.remove(&handle).map(drop).ok_or(INVALID_HANDLE)
    }

    /// Makes a graph executable.
    pub fn instantiate(&mut self, graph: Handle) -> Result<Handle, Status> {
        let graph = *self.graph(graph)?;
        let handle = new_handle();
        INSTANTIATED.fetch_add(1, Relaxed);
        self.executables.insert(handle, graph);
        Ok(handle)
    }

    /// Launches an executable graph on a stream.
    pub fn launch_graph(&mut self, executable: Handle, stream: Handle) -> Result<(), Status> {
        let graph = *self.executables.get(&executable).ok_or(INVALID_HANDLE)?;
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
        WORK.fetch_add(graph.nodes.max(1), Relaxed);
        self.launch(stream, graph.nanoseconds);
        Ok(())
    }

    /// Destroys an executable graph.
    pub fn destroy_executable(&mut self, executable: Handle) -> Result<(), Status> {
        self.executables.remove(&executable).map(drop).ok_or(INVALID_HANDLE)
    }
}
