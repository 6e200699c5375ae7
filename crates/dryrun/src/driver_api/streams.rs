//! Streams, events, capture: as in the runtime.

use super::end;
use crate::{
    errors::{SUCCESS, Status},
    execution::{Handle, execution, launch},
    ffi::Out,
    runtime_api::{
        cudaGraphDestroy, cudaGraphExecDestroy, cudaGraphInstantiate, cudaGraphLaunch, cudaStreamBeginCapture,
        cudaStreamEndCapture, cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v3, cudaStreamIsCapturing,
        cudaThreadExchangeStreamCaptureMode, current_device,
    },
};
use std::ffi::{c_int, c_uint};

exports! {
    fn cuStreamCreate(place: Out<Handle>, flags: c_uint) -> Status {
        place.set(execution().create_stream(current_device(), 0, flags));
        SUCCESS
    }

    fn cuStreamCreateWithPriority(place: Out<Handle>, flags: c_uint, priority: c_int) -> Status {
        place.set(execution().create_stream(current_device(), priority, flags));
        SUCCESS
    }

    fn cuStreamDestroy_v2(stream: Handle) -> Status {
        end(execution().destroy_stream(stream))
    }

    fn cuStreamSynchronize(stream: Handle) -> Status {
        end(execution().synchronize_stream(stream))
    }

    fn cuStreamQuery(stream: Handle) -> Status {
        end(execution().query_stream(stream))
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Status {
        end(execution().wait_event(stream, event))
    }

    fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) -> Status {
        end(execution().stream(stream).map(|stream| priority.set(stream.priority)))
    }

    fn cuStreamGetCtx(_stream: Handle, context: Out<Handle>) -> Status {
        context.set(super::context::current());
        SUCCESS
    }

    fn cuStreamGetCtx_v2(_stream: Handle, context: Out<Handle>, green: Out<Handle>) -> Status {
        context.set(super::context::current());
        green.set(0);
        SUCCESS
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_int>) -> Status {
        cudaThreadExchangeStreamCaptureMode(mode)
    }

    fn cuStreamIsCapturing(stream: Handle, status: Out<c_int>) -> Status {
        cudaStreamIsCapturing(stream, status)
    }

    fn cuStreamGetCaptureInfo_v2(stream: Handle, status: Out<c_int>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<u64>, count: Out<usize>) -> Status {
        cudaStreamGetCaptureInfo_v2(stream, status, number, graph, dependencies, count)
    }

    fn cuStreamGetCaptureInfo_v3(stream: Handle, status: Out<c_int>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<u64>, edges: Out<u64>, count: Out<usize>) -> Status {
        cudaStreamGetCaptureInfo_v3(stream, status, number, graph, dependencies, edges, count)
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int) -> Status {
        cudaStreamBeginCapture(stream, mode)
    }

    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> Status {
        cudaStreamEndCapture(stream, graph)
    }

    fn cuGraphInstantiateWithFlags(place: Out<Handle>, graph: Handle, _flags: u64) -> Status {
        cudaGraphInstantiate(place, graph)
    }

    fn cuGraphLaunch(executable: Handle, stream: Handle) -> Status {
        cudaGraphLaunch(executable, stream)
    }

    fn cuGraphDestroy(graph: Handle) -> Status {
        cudaGraphDestroy(graph)
    }

    fn cuGraphExecDestroy(executable: Handle) -> Status {
        cudaGraphExecDestroy(executable)
    }

    fn cuStreamWriteValue32_v2(stream: Handle, _address: u64, _value: c_uint, _flags: c_uint) -> Status {
        launch(stream);
        SUCCESS
    }

    fn cuStreamWaitValue32_v2(stream: Handle, _address: u64, _value: c_uint, _flags: c_uint) -> Status {
        launch(stream);
        SUCCESS
    }

    fn cuEventCreate(place: Out<Handle>, _flags: c_uint) -> Status {
        place.set(execution().create_event());
        SUCCESS
    }

    fn cuEventDestroy_v2(event: Handle) -> Status {
        end(execution().destroy_event(event))
    }

    fn cuEventRecord(event: Handle, stream: Handle) -> Status {
        end(execution().record_event(event, stream))
    }

    fn cuEventQuery(event: Handle) -> Status {
        end(execution().query_event(event))
    }

    fn cuEventSynchronize(event: Handle) -> Status {
        end(execution().synchronize_event(event))
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, from: Handle, to: Handle) -> Status {
        end(execution().elapsed(from, to).map(|time| milliseconds.set(time)))
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, from: Handle, to: Handle) -> Status {
        cuEventElapsedTime(milliseconds, from, to)
    }
}
