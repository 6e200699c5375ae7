//! How long work takes: from floating-point operations, bytes, and the data sheet of the GPU.
//!
//! An operation takes as long as the slower of two: its arithmetic at the peak of its number type, and its bytes at the bandwidth of the memory, each
//! at the share of the peak that its class reaches. The shares were lowered once, when the steps
//! of a Llama and a GPT-2 on an H200 and of offloaded activations on an H100 came out too short: bench/results/clock.md.

use stalloc_dryrun_setup::Gpu;

/// What a kernel takes at the least, with the gap to the next one, nanoseconds.
pub const FLOOR: u64 = 2_500;
/// What the host takes for a launch, a copy or a fill, nanoseconds. This and the two that follow: SAC's steps on a host with an H100.
pub const LAUNCH: u64 = 5_000;
/// What the host takes for an operation of PyTorch without its launches, the Python around it included, nanoseconds,
pub const OPERATION: u64 = 16_000;
/// and for one that another is made of.
pub const PART: u64 = 1_000;
/// What the host takes where cuBLAS meets a product of sizes that are new to it, in any order, and chooses a kernel for it and one for each of its
/// gradients: experts of drawn sizes on an H100. Nanoseconds,
pub const NEW_PRODUCT: u64 = 1_100_000;
/// where cuDNN is asked for engines of a convolution: batches of drawn sizes there,
pub const NEW_CONVOLUTION: u64 = 1_300_000;
/// and of another graph of operations, above all attention, whose kernel is built for its sizes: texts of drawn lengths there.
pub const NEW_GRAPH: u64 = 55_000_000;
/// What the host takes to record an event, or to let a stream wait for one, nanoseconds.
pub const EVENT: u64 = 1_500;
/// Page-locked memory, nanoseconds a mebibyte: its pages are cleared and pinned, and given back (4 GiB on an H100's host).
pub const PIN: u64 = 418_000;
pub const UNPIN: u64 = 115_000;
/// Memory of the host that is not page-locked, hundredths of a byte a nanosecond: pictures that a convolutional net is given on an H100. Where
/// nobody had written to the pages it was 305 there; which those are differs from run to run.
const PAGED: u64 = 770;
/// From the start of a copy over the link to its first byte, nanoseconds.
const LINK_LATENCY: u64 = 8_000;

/// A class of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationClass {
    /// Products of matrices.
    Matrix,
    Attention,
    Convolution,
    /// Convolutions of 16 bits whose channels come before their rows: what is read and written is put into another order on the way.
    ConvolutionReordered,
    /// What reads and writes each element once.
    ElementWise,
    /// Sums, norms, softmax: elements are read again or meet others.
    Reduction,
    /// Elements at indices.
    Gather,
    /// What the host reads and writes itself.
    Host,
    /// Random numbers that the host draws.
    HostRandom,
    /// A norm over each channel, of which one multiprocessor passes all elements one after the other: these are its operations.
    ByChannel,
    ByChannelBackward,
}

impl OperationClass {
    /// From its number in `stalloc_dryrun_operation_took`.
    pub fn from_number(number: i32) -> Self {
        match number {
            0 => Self::Matrix,
            1 => Self::Attention,
            2 => Self::Convolution,
            4 => Self::Reduction,
            5 => Self::Gather,
            7 => Self::Host,
            8 => Self::HostRandom,
            9 => Self::ConvolutionReordered,
            10 => Self::ByChannel,
            11 => Self::ByChannelBackward,
            _ => Self::ElementWise,
        }
    }

    /// Per cent of the peak of arithmetic, and of the memory's bandwidth, that its kernels reach.
    fn shares(self) -> (u64, u64) {
        match self {
            Self::Matrix => (60, 80),
            Self::Attention => (40, 80),
            Self::Convolution | Self::ConvolutionReordered => (40, 70),
            Self::ElementWise => (100, 60),
            Self::Reduction | Self::ByChannel | Self::ByChannelBackward => (100, 45),
            Self::Gather => (100, 40),
            Self::Host | Self::HostRandom => (100, 100),
        }
    }
}

/// How long the host takes for so many bytes that it reads and writes, nanoseconds: one core passes 10 GB/s, and draws 200 million numbers
/// of 4 bytes a second, each in the place of another.
pub fn on_host(class: OperationClass, bytes: u64) -> Option<u64> {
    match class {
        OperationClass::Host => Some(bytes / 10),
        OperationClass::HostRandom => Some(bytes / 8 * 5),
        _ => None,
    }
}

/// Nanoseconds that so many bytes or operations take at so many a nanosecond.
fn at(amount: u64, rate: u64, share: u64) -> u64 {
    u64::try_from(u128::from(amount) * 100 / u128::from((rate * share).max(1))).unwrap_or(u64::MAX)
}

/// Bytes a nanosecond of the GPU's memory.
fn bandwidth(gpu: &Gpu) -> u64 {
    u64::from(gpu.bus_width) / 8 * u64::from(gpu.memory_clock) * 2 / 1_000_000
}

/// Operations a nanosecond on matrices of a `c10::ScalarType`; `reduced`: 32-bit fractions may be cut to 19 bits (TF32).
fn arithmetic(gpu: &Gpu, kind: u16, reduced: bool) -> u64 {
    let per_clock = match gpu.capability {
        (7 | 8, 0) | (7, 5) => 128,
        _ => 256,
    };
    let plain = u64::from(gpu.multiprocessors) * per_clock * u64::from(gpu.clock) / 1_000_000;
    let matrices = u64::from(gpu.peak) * 1000;
    let is_large = gpu.capability.1 == 0 || gpu.capability == (10, 3);
    match kind {
        5 | 15 => matrices,
        // Eight bits: integers, and fractions where the GPU has them.
        0 | 1 => 2 * matrices,
        23..=26 if gpu.capability >= (8, 9) => 2 * matrices,
        6 if reduced && gpu.capability.0 >= 8 => matrices / 2,
        7 if is_large => plain / 2,
        7 => plain / 64,
        _ => plain,
    }
}

/// How long one multiprocessor takes for so many elements, at so many hundredths of a nanosecond each on an H100: batch norms of a detector there.
fn one_by_one(gpu: &Gpu, elements: u64, hundredths: u64) -> u64 {
    elements.saturating_mul(hundredths * 19_800) / u64::from(gpu.clock).max(1)
}

/// How long an operation takes.
pub fn operation(gpu: &Gpu, class: OperationClass, kind: u16, reduced: bool, operations: u64, bytes: u64) -> u64 {
    let (arithmetic_share, memory_share) = class.shares();
    let rate = arithmetic(gpu, kind, reduced || class == OperationClass::Convolution);
    let computed = match class {
        OperationClass::ByChannel => one_by_one(gpu, operations, 100),
        OperationClass::ByChannelBackward => one_by_one(gpu, operations, 180),
        _ => at(operations, rate, arithmetic_share),
    };
    let took = computed.max(at(bytes, bandwidth(gpu), memory_share)).max(FLOOR);
    match class {
        // Kernels of their own, before and after: each reads and writes, not in the same order.
        OperationClass::ConvolutionReordered => {
            took.saturating_add(at(bytes.saturating_mul(2), bandwidth(gpu), OperationClass::Gather.shares().1))
        }
        _ => took,
    }
}

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyWay {
    /// Within a device, or a fill: bytes read and written count.
    Device,
    /// Between the device and page-locked memory.
    Pinned,
    /// Between the device and other memory of the host, by way of a buffer.
    Paged,
}

/// How long a copy takes.
pub fn copy(gpu: &Gpu, way: CopyWay, bytes: u64) -> u64 {
    match way {
        CopyWay::Device => at(bytes, bandwidth(gpu), 80).max(FLOOR),
        CopyWay::Pinned => LINK_LATENCY.saturating_add(at(bytes, gpu.link.into(), 78)),
        CopyWay::Paged => LINK_LATENCY.saturating_add(at(bytes, gpu.link.into(), 78).max(at(bytes, 1, PAGED))),
    }
}

/// How long a collective takes in which so many bytes leave and reach each rank.
pub fn collective(gpu: &Gpu, bytes: u64) -> u64 {
    let each_way = match gpu.capability.0 {
        _ if !gpu.nvlink => u64::from(gpu.link) / 2,
        7 => 150,
        8 => 300,
        9 => 450,
        _ => 900,
    };
    at(bytes, each_way, 80).saturating_add(4 * FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h100() -> Gpu {
        stalloc_dryrun_setup::find("h100-80gb").unwrap()
    }

    #[test]
    fn the_slower_of_arithmetic_and_memory_decides() {
        let gpu = h100();
        let matrix = |m: u64, n: u64, k: u64, kind| {
            operation(&gpu, OperationClass::Matrix, kind, false, 2 * m * n * k, 2 * (m * k + k * n + m * n))
        };
        // 8192 cubed: 1.1 peta operations of 989 a second at the share of matrices.
        let large = matrix(8192, 8192, 8192, 15);
        assert!((1_700_000..2_200_000).contains(&large), "{large}");
        assert!(
            matrix(8192, 8192, 8192, 6) > 10 * large,
            "32-bit fractions have no tensor cores unless the program allows it"
        );
        let thin = matrix(8192, 8192, 1, 15);
        assert!(thin < 100_000 && thin > 30_000, "{thin}");
        assert_eq!(matrix(8, 8, 8, 15), FLOOR);
        // 1 GiB read and written of 3.35 TB/s.
        let sum = operation(&gpu, OperationClass::ElementWise, 15, false, 0, 2 << 30);
        assert!((900_000..1_200_000).contains(&sum), "{sum}");
    }

    #[test]
    fn a_norm_of_few_channels_does_not_use_the_whole_gpu() {
        let gpu = h100();
        let took = |channels: u64, class| operation(&gpu, class, 15, false, (1 << 26) / channels, 2 << 27);
        // 64 Mi elements: 268 MB at 45 % of 3.35 TB/s, or a nanosecond for each of a channel.
        assert_eq!(took(4096, OperationClass::ByChannel), took(1 << 20, OperationClass::ByChannel));
        assert!((2_000_000..2_200_000).contains(&took(32, OperationClass::ByChannel)));
        assert!((3_600_000..3_900_000).contains(&took(32, OperationClass::ByChannelBackward)));
    }

    #[test]
    fn reordering_for_a_convolution_takes_time_of_its_own() {
        let took = |class| operation(&h100(), class, 15, false, 1 << 40, 1 << 30);
        let more = took(OperationClass::ConvolutionReordered) - took(OperationClass::Convolution);
        // 2 GiB of 3.35 TB/s at four tenths.
        assert!((1_500_000..1_700_000).contains(&more), "{more}");
    }

    #[test]
    fn copies_take_the_link_and_page_locked_memory_is_fast() {
        let gpu = h100();
        let [device, pinned, paged] =
            [CopyWay::Device, CopyWay::Pinned, CopyWay::Paged].map(|way| copy(&gpu, way, 1 << 30));
        assert!(device < pinned && pinned < paged);
        assert!((20_000_000..24_000_000).contains(&pinned), "{pinned}");
        assert!((135_000_000..145_000_000).contains(&paged), "{paged}");
    }

    #[test]
    fn the_host_takes_time_for_what_it_does_itself_alone() {
        let of = |number, bytes| on_host(OperationClass::from_number(number), bytes);
        assert_eq!((of(7, 1_000_000), of(8, 8_000_000), of(3, 1_000_000)), (Some(100_000), Some(5_000_000), None));
    }

    #[test]
    fn no_size_overflows_and_no_gpu_divides_by_zero() {
        let nothing = Gpu { bus_width: 0, clock: 0, memory_clock: 0, peak: 0, link: 0, ..h100() };
        for gpu in stalloc_dryrun_setup::GPUS.iter().chain([&nothing]) {
            for class in (0..12).map(OperationClass::from_number) {
                for kind in [0, 5, 6, 7, 15, 23, 99] {
                    assert!(operation(gpu, class, kind, true, u64::MAX, u64::MAX) > FLOOR);
                }
            }
            assert!(collective(gpu, u64::MAX) > 0 && copy(gpu, CopyWay::Paged, u64::MAX) > 0);
        }
    }
}
