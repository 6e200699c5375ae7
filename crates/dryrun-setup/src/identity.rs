//! What tells the devices of a dry run apart, the same for the library and for `nvidia-smi`.

/// A version of NVIDIA's driver that supports every CUDA so far.
pub const DRIVER: &str = "600.00.00";

/// The PCI bus number of a device.
#[must_use]
pub fn pci_bus(device: u32) -> u32 {
    0x10 + device
}

/// A device's place on the bus, as NVIDIA writes it.
#[must_use]
pub fn bus_name(device: u32) -> String {
    format!("00000000:{:02X}:00.0", pci_bus(device))
}

/// The sixteen bytes that identify a device.
#[must_use]
pub fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = *b"stalloc-dry-run\0";
    uuid[15] = device.to_le_bytes()[0];
    uuid
}

/// The device's identity, as the driver and `CUDA_VISIBLE_DEVICES` write it.
#[must_use]
pub fn uuid_name(device: u32) -> String {
    let hex: String = uuid(device).iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("GPU-{}", parts.join("-"))
}
