use super::*;

#[test]
fn a_device_runs_machine_code_of_its_generation_else_compiles_intermediate_code() {
    let wheel = [(ELF, 75), (ELF, 80), (ELF, 86), (ELF, 90), (ELF, 120), (PTX, 120)];
    assert_eq!(choose(&wheel, 80), Some((80, 80)));
    assert_eq!(choose(&wheel, 89), Some((86, 86)));
    assert_eq!(choose(&wheel, 90), Some((90, 90)));
    assert_eq!(choose(&wheel, 121), Some((120, 120)));
    assert_eq!(choose(&wheel, 100), None);
    assert_eq!(choose(&[(PTX, 70), (PTX, 80)], 89), Some((80, 89)));
}

#[test]
fn parts_are_read_as_the_compiler_lays_them_out() {
    let mut code = Vec::new();
    let part = |kind: u16, architecture: u32, length: u64| {
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&64_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&length.to_ne_bytes());
        bytes[28..32].copy_from_slice(&architecture.to_ne_bytes());
        bytes.extend(std::iter::repeat_n(0xee, length as usize));
        bytes
    };
    let parts = [part(ELF, 86, 40), part(PTX, 90, 8)].concat();
    code.extend(CODE.to_ne_bytes());
    code.extend([1_u16, 16].map(u16::to_ne_bytes).concat());
    code.extend((parts.len() as u64).to_ne_bytes());
    code.extend(parts);
    let binary = FatBinary { magic: WRAPPER, _version: 1, data: code.as_ptr().expose_provenance(), _file: 0 };
    assert_eq!(binary.parts(), [(ELF, 86), (PTX, 90)]);
    assert!(FatBinary { magic: 0, ..binary }.parts().is_empty());
}
