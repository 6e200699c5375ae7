//! Events.

use super::end;
use crate::{
    errors::{SUCCESS, Status},
    execution::{Handle, execution},
    ffi::Out,
};
use std::ffi::c_uint;

exports! {
    fn cudaEventCreate(place: Out<Handle>) -> Status {
        place.set(execution().create_event());
        SUCCESS
    }

    fn cudaEventCreateWithFlags(place: Out<Handle>, _flags: c_uint) -> Status {
        cudaEventCreate(place)
    }

    fn cudaEventDestroy(event: Handle) -> Status {
        end(execution().destroy_event(event))
    }

    fn cudaEventRecord(event: Handle, stream: Handle) -> Status {
        end(execution().record_event(event, stream))
    }

    fn cudaEventRecordWithFlags(event: Handle, stream: Handle, _flags: c_uint) -> Status {
        cudaEventRecord(event, stream)
    }

    fn cudaEventQuery(event: Handle) -> Status {
        end(execution().query_event(event))
    }

    fn cudaEventSynchronize(event: Handle) -> Status {
        end(execution().synchronize_event(event))
    }

    fn cudaEventElapsedTime(milliseconds: Out<f32>, from: Handle, to: Handle) -> Status {
        end(execution().elapsed(from, to).map(|time| milliseconds.set(time)))
    }

    fn cudaEventElapsedTime_v2(milliseconds: Out<f32>, from: Handle, to: Handle) -> Status {
        cudaEventElapsedTime(milliseconds, from, to)
    }
}
