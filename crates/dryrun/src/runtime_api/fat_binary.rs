//! Compiled device code, as far as it says which devices it is for.
//!
//! A program asks with which version of its code a kernel runs (`cudaFuncGetAttributes`) and chooses by it how to launch; a
//! version that the program was not compiled for is an error to it. A device loads machine code of its own generation that
//! is not newer than itself, else it compiles the newest intermediate code that is not.

/// `__fatBinC_Wrapper_t` of CUDA's `fatBinaryCtl.h`, as the compiler's start code passes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FatBinary {
    magic: u32,
    _version: u32,
    /// Address of the code.
    data: usize,
    _file: usize,
}

const WRAPPER: u32 = 0x4662_43b1;
const CODE: u32 = 0xba55_ed50;
const PTX: u16 = 1;
const ELF: u16 = 2;

/// What stands before all of the code.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    magic: u32,
    _version: u16,
    size: u16,
    /// Bytes of all parts.
    parts: u64,
}

/// What stands before each part, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
struct PartHead {
    kind: u16,
    _version: u16,
    size: u32,
    /// Bytes of code behind it.
    code: u64,
    _compressed: u32,
    _options: u32,
    _isa: [u16; 2],
    architecture: u32,
}

/// Parts that are looked at: there is one for each architecture.
const MOST_PARTS: usize = 256;

impl FatBinary {
    /// Version of the intermediate code and of the machine code with which `device` (90: 9.0) runs it; `None` if it holds
    /// nothing for it.
    pub fn versions(&self, device: u32) -> Option<(u32, u32)> {
        choose(&self.parts(), device)
    }

    /// Kind and architecture of each part.
    fn parts(&self) -> Vec<(u16, u32)> {
        let mut parts = Vec::new();
        if self.magic != WRAPPER || self.data == 0 {
            return parts;
        }
        let at = |offset: usize| std::ptr::with_exposed_provenance::<u8>(self.data.wrapping_add(offset));
        // SAFETY: the magic number says that the compiler's start code passed this, and `data` is what it linked; the module
        // that holds it is unregistered before it is unloaded, and forgotten then.
        let head = unsafe { at(0).cast::<Head>().read_unaligned() };
        if head.magic != CODE {
            return parts;
        }
        let (mut offset, end) = (usize::from(head.size), usize::from(head.size) + head.parts as usize);
        while offset + size_of::<PartHead>() <= end && parts.len() < MOST_PARTS {
            // SAFETY: as above; the part lies within the bytes that the head promises.
            let part = unsafe { at(offset).cast::<PartHead>().read_unaligned() };
            parts.push((part.kind, part.architecture));
            let size = part.size as usize + part.code as usize;
            if size == 0 {
                break;
            }
            offset = offset.saturating_add(size);
        }
        parts
    }
}

fn choose(parts: &[(u16, u32)], device: u32) -> Option<(u32, u32)> {
    let newest = |kind: u16, fits: &dyn Fn(u32) -> bool| {
        parts.iter().filter(|(of, version)| *of == kind && fits(*version)).map(|(_, version)| *version).max()
    };
    let machine = newest(ELF, &|version| version <= device && version / 10 == device / 10);
    let intermediate = newest(PTX, &|version| version <= device);
    machine.map(|version| (version, version)).or_else(|| intermediate.map(|version| (version, device)))
}

#[cfg(test)]
mod tests;
