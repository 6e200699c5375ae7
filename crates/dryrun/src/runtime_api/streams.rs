//! Streams, and capture on them.

use super::{current_device, end};
use crate::{
    errors::{INVALID_VALUE, SUCCESS, Status},
    execution::{CaptureInfo, Handle, Mode, cuda_major, exchange_thread_mode, execution, launch},
    ffi::Out,
};
use std::ffi::{c_int, c_uint, c_void};

/// `cudaStreamCaptureStatus`.
fn capture_status(info: Option<CaptureInfo>) -> c_int {
    match info {
        None => 0,
        Some(info) if info.valid => 1,
        Some(_) => 2,
    }
}

/// What the second and third versions of the question answer; the first only has the first two results.
fn capture_info(stream: Handle, status: Out<c_int>, number: Out<u64>) -> Option<CaptureInfo> {
    let info = execution().capture_info(stream);
    status.set(capture_status(info));
    if let Some(info) = info {
        number.set(info.number);
    }
    info
}

exports! {
    fn cudaStreamCreate(place: Out<Handle>) -> Status {
        cudaStreamCreateWithPriority(place, 0, 0)
    }

    fn cudaStreamCreateWithFlags(place: Out<Handle>, flags: c_uint) -> Status {
        cudaStreamCreateWithPriority(place, flags, 0)
    }

    fn cudaStreamCreateWithPriority(place: Out<Handle>, flags: c_uint, priority: c_int) -> Status {
        place.set(execution().create_stream(current_device(), priority, flags));
        SUCCESS
    }

    fn cudaStreamDestroy(stream: Handle) -> Status {
        end(execution().destroy_stream(stream))
    }

    fn cudaStreamGetPriority(stream: Handle, priority: Out<c_int>) -> Status {
        end(execution().stream(stream).map(|stream| priority.set(stream.priority)))
    }

    fn cudaStreamGetFlags(stream: Handle, flags: Out<c_uint>) -> Status {
        end(execution().stream(stream).map(|stream| flags.set(stream.flags)))
    }

    fn cudaStreamGetId(stream: Handle, number: Out<u64>) -> Status {
        end(execution().stream(stream).map(|_| number.set(stream)))
    }

    fn cudaStreamGetDevice(stream: Handle, device: Out<c_int>) -> Status {
        end(execution().stream(stream).map(|stream| device.set(stream.device.cast_signed())))
    }

    fn cudaStreamQuery(stream: Handle) -> Status {
        end(execution().query_stream(stream))
    }

    fn cudaStreamSynchronize(stream: Handle) -> Status {
        end(execution().synchronize_stream(stream))
    }

    fn cudaStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Status {
        end(execution().wait_event(stream, event))
    }

    fn cudaStreamAddCallback(stream: Handle, callback: Option<extern "C" fn(Handle, Status, *mut c_void)>, data: *mut c_void, _flags: c_uint) -> Status {
        let exists = execution().stream(stream);
        end(exists.and_then(|_| callback.ok_or(INVALID_VALUE)).map(|callback| callback(stream, SUCCESS, data)))
    }

    fn cudaLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) -> Status {
        let capturing = {
            let execution = execution();
            execution.stream(stream).map(|_| execution.is_capturing(stream))
        };
        end(capturing.and_then(|capturing| {
            let function = function.ok_or(INVALID_VALUE)?;
            if capturing {
                launch(stream);
            } else {
                function(data);
            }
            Ok(())
        }))
    }

    fn cudaStreamBeginCapture(stream: Handle, mode: c_int) -> Status {
        end(execution().begin_capture(stream, Mode::from_number(mode), None))
    }

    fn cudaStreamBeginCaptureToGraph(stream: Handle, graph: Handle, _dependencies: u64, _data: u64, _count: usize, mode: c_int) -> Status {
        end(execution().begin_capture(stream, Mode::from_number(mode), Some(graph)))
    }

    fn cudaStreamEndCapture(stream: Handle, graph: Out<Handle>) -> Status {
        let ended = execution().end_capture(stream);
        graph.set(*ended.as_ref().unwrap_or(&0));
        end(ended)
    }

    fn cudaStreamIsCapturing(stream: Handle, status: Out<c_int>) -> Status {
        status.set(capture_status(execution().capture_info(stream)));
        SUCCESS
    }

    // Before version 13 this name has three arguments, and the others are whatever the registers hold.
    fn cudaStreamGetCaptureInfo(stream: Handle, status: Out<c_int>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<u64>, edges: Out<u64>, count: Out<usize>) -> Status {
        if cuda_major() >= 13 {
            return cudaStreamGetCaptureInfo_v3(stream, status, number, graph, dependencies, edges, count);
        }
        capture_info(stream, status, number);
        SUCCESS
    }

    fn cudaStreamGetCaptureInfo_v2(stream: Handle, status: Out<c_int>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<u64>, count: Out<usize>) -> Status {
        if let Some(info) = capture_info(stream, status, number) {
            graph.set(info.graph);
            dependencies.set(0);
            count.set(0);
        }
        SUCCESS
    }

    fn cudaStreamGetCaptureInfo_v3(stream: Handle, status: Out<c_int>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<u64>, edges: Out<u64>, count: Out<usize>) -> Status {
        edges.set(0);
        cudaStreamGetCaptureInfo_v2(stream, status, number, graph, dependencies, count)
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<c_int>) -> Status {
        if let Some(number) = mode.get() {
            mode.set(exchange_thread_mode(Mode::from_number(number)).number());
        }
        SUCCESS
    }
}
