//! Collectives, under one assumption: every other rank does what this one does, with the same bytes.
//!
//! That is exact for a communicator of one rank, and right for what programs exchange to see whether they agree (shapes, sizes, pickled
//! settings). So bytes that are known stay known through a gather or a broadcast. A sum over several ranks is not known.

use super::{INVALID_ARGUMENT, SUCCESS, find};
use crate::{
    execution::{Handle, collective, execution},
    memory::memory,
};
use std::ffi::c_int;

/// `ncclMax`, `ncclMin` and `ncclAvg`: the same values give the same again.
const KEEPING: [c_int; 3] = [2, 3, 4];

/// Bytes of `count` elements of a `ncclDataType_t`.
fn bytes(count: usize, data_type: c_int) -> u64 {
    let element = match data_type {
        4 | 5 | 8 => 8,
        2 | 3 | 7 => 4,
        6 | 9 => 2,
        _ => 1,
    };
    (count as u64).saturating_mul(element)
}

/// What happens to the bytes: from where, to where, how many.
type Move = (u64, u64, u64);

/// Starts a collective that moves bytes as `moves` says, given the number of ranks and this rank. Each rank sends and receives `times` as many,
/// but for its own part.
fn run<Moves: IntoIterator<Item = Move>>(
    communicator: Handle,
    stream: Handle,
    keeps: bool,
    times: impl FnOnce(u64) -> u64,
    moves: impl FnOnce(u64, u64) -> Moves,
) -> c_int {
    let Some(communicator) = find(communicator) else {
        return INVALID_ARGUMENT;
    };
    let (ranks, rank) = (communicator.ranks.unsigned_abs().into(), communicator.rank.unsigned_abs().into());
    let captured = execution().is_capturing(stream);
    let moves: Vec<Move> = moves(ranks, rank).into_iter().collect();
    let moved = moves.iter().fold(0_u64, |sum, (.., bytes)| sum.saturating_add(*bytes)).saturating_mul(times(ranks));
    collective(stream, moved / ranks.max(1) * ranks.saturating_sub(1));
    let mut memory = memory();
    for (from, to, bytes) in moves {
        if captured || !(keeps || ranks == 1) {
            memory.known().forget(to, bytes);
        } else if from != to {
            memory.known().moved(from, to, bytes);
        }
    }
    SUCCESS
}

exports! {
    fn ncclAllReduce(from: u64, to: u64, count: usize, data_type: c_int, operation: c_int, communicator: Handle, stream: Handle) -> c_int {
        run(communicator, stream, KEEPING.contains(&operation), |_| 2, |_, _| [(from, to, bytes(count, data_type))])
    }

    fn ncclReduce(from: u64, to: u64, count: usize, data_type: c_int, operation: c_int, root: c_int, communicator: Handle, stream: Handle) -> c_int {
        run(communicator, stream, KEEPING.contains(&operation), |_| 1, |_, rank| {
            (rank == u64::from(root.unsigned_abs())).then(|| (from, to, bytes(count, data_type)))
        })
    }

    fn ncclBroadcast(from: u64, to: u64, count: usize, data_type: c_int, _root: c_int, communicator: Handle, stream: Handle) -> c_int {
        run(communicator, stream, true, |_| 1, |_, _| [(from, to, bytes(count, data_type))])
    }

    fn ncclBcast(place: u64, count: usize, data_type: c_int, root: c_int, communicator: Handle, stream: Handle) -> c_int {
        ncclBroadcast(place, place, count, data_type, root, communicator, stream)
    }

    fn ncclAllGather(from: u64, to: u64, count: usize, data_type: c_int, communicator: Handle, stream: Handle) -> c_int {
        let part = bytes(count, data_type);
        run(communicator, stream, true, |_| 1, |ranks, _| (0..ranks).map(move |rank| (from, to.wrapping_add(rank * part), part)))
    }

    fn ncclReduceScatter(from: u64, to: u64, count: usize, data_type: c_int, operation: c_int, communicator: Handle, stream: Handle) -> c_int {
        let part = bytes(count, data_type);
        run(communicator, stream, KEEPING.contains(&operation), |ranks| ranks, |_, rank| [(from.wrapping_add(rank * part), to, part)])
    }

    fn ncclAlltoAll(from: u64, to: u64, count: usize, data_type: c_int, communicator: Handle, stream: Handle) -> c_int {
        // Each rank sends this one what this one sends to itself.
        let part = bytes(count, data_type);
        run(communicator, stream, true, |_| 1, |ranks, own| {
            (0..ranks).map(move |rank| (from.wrapping_add(own * part), to.wrapping_add(rank * part), part))
        })
    }

    fn ncclGather(from: u64, to: u64, count: usize, data_type: c_int, root: c_int, communicator: Handle, stream: Handle) -> c_int {
        let part = bytes(count, data_type);
        run(communicator, stream, true, |_| 1, |ranks, own| {
            let ranks = if own == u64::from(root.unsigned_abs()) { ranks } else { 0 };
            (0..ranks).map(move |rank| (from, to.wrapping_add(rank * part), part))
        })
    }

    fn ncclSend(_from: u64, _count: usize, _data_type: c_int, _peer: c_int, communicator: Handle, stream: Handle) -> c_int {
        run(communicator, stream, true, |_| 1, |_, _| [])
    }

    fn ncclRecv(to: u64, count: usize, data_type: c_int, _peer: c_int, communicator: Handle, stream: Handle) -> c_int {
        run(communicator, stream, false, |_| 1, |_, _| [(to, to, bytes(count, data_type))])
    }

    fn ncclGroupStart() -> c_int {
        SUCCESS
    }

    fn ncclGroupEnd() -> c_int {
        SUCCESS
    }
}
