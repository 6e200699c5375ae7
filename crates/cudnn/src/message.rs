//! What goes over the socket: numbers in the machine's order, as both ends are the same machine.

use std::io::{self, Read, Write};

/// The longest attribute that is sent, bytes: a handful of numbers, or a description of a GPU.
const LONGEST: u64 = 1 << 20;

/// One call of cuDNN's backend interface. Descriptors are the library's own pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `cudnnBackendCreateDescriptor`; the reply's bytes are the descriptor.
    Create {
        /// Which kind.
        kind: i32,
    },
    /// `cudnnBackendSetAttribute`.
    Set {
        /// Of which descriptor.
        descriptor: u64,
        /// The attribute.
        name: i32,
        /// Its type.
        kind: i32,
        /// Elements.
        count: i64,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// `cudnnBackendFinalize`.
    Finalize {
        /// Which descriptor.
        descriptor: u64,
    },
    /// `cudnnBackendGetAttribute`; the reply has the number of elements that there are, and the bytes of those that were asked for.
    Get {
        /// Of which descriptor.
        descriptor: u64,
        /// The attribute.
        name: i32,
        /// Its type.
        kind: i32,
        /// Elements that there is room for.
        count: i64,
        /// The room, filled in where the elements are descriptors that the caller made.
        bytes: Vec<u8>,
    },
    /// `cudnnBackendDestroyDescriptor`.
    Destroy {
        /// Which descriptor.
        descriptor: u64,
    },
}

/// What a call answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// A `cudnnStatus_t`.
    pub status: i32,
    /// Elements that there are.
    pub count: i64,
    /// Bytes of the elements.
    pub bytes: Vec<u8>,
}

impl Call {
    /// Writes the call.
    pub(crate) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let empty = Vec::new();
        let (tag, descriptor, name, kind, count, bytes) = match self {
            Self::Create { kind } => (0, 0, 0, *kind, 0, &empty),
            Self::Set { descriptor, name, kind, count, bytes } => (1, *descriptor, *name, *kind, *count, bytes),
            Self::Finalize { descriptor } => (2, *descriptor, 0, 0, 0, &empty),
            Self::Get { descriptor, name, kind, count, bytes } => (3, *descriptor, *name, *kind, *count, bytes),
            Self::Destroy { descriptor } => (4, *descriptor, 0, 0, 0, &empty),
        };
        let mut message = vec![tag];
        message.extend(descriptor.to_ne_bytes());
        message.extend(name.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(count.to_ne_bytes());
        append(&mut message, bytes);
        to.write_all(&message)
    }

    /// Reads a call; none at the end.
    pub(crate) fn receive(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut tag = [0];
        if from.read(&mut tag)? == 0 {
            return Ok(None);
        }
        let descriptor = u64::from_ne_bytes(array(from)?);
        let (name, kind) = (i32::from_ne_bytes(array(from)?), i32::from_ne_bytes(array(from)?));
        let count = i64::from_ne_bytes(array(from)?);
        let bytes = rest(from)?;
        Ok(Some(match tag[0] {
            0 => Self::Create { kind },
            1 => Self::Set { descriptor, name, kind, count, bytes },
            2 => Self::Finalize { descriptor },
            3 => Self::Get { descriptor, name, kind, count, bytes },
            4 => Self::Destroy { descriptor },
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }))
    }
}

impl Reply {
    /// An answer that is a status and no more.
    #[must_use]
    pub fn status(status: i32) -> Self {
        Self { status, ..Self::default() }
    }

    /// Writes the reply.
    pub(crate) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut message = self.status.to_ne_bytes().to_vec();
        message.extend(self.count.to_ne_bytes());
        append(&mut message, &self.bytes);
        to.write_all(&message)
    }

    /// Reads a reply.
    pub(crate) fn receive(from: &mut impl Read) -> io::Result<Self> {
        let status = i32::from_ne_bytes(array(from)?);
        let count = i64::from_ne_bytes(array(from)?);
        Ok(Self { status, count, bytes: rest(from)? })
    }
}

fn append(message: &mut Vec<u8>, bytes: &[u8]) {
    message.extend((bytes.len() as u64).to_ne_bytes());
    message.extend(bytes);
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn rest(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = u64::from_ne_bytes(array(from)?);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    from.by_ref().take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests;
