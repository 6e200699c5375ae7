use super::{attribute_of, limit, structure};
use serde_json::Value;
use stalloc_dryrun_setup::find;

/// Sizes and places in the headers of CUDA 11.7, 12.4 and 13.2.
#[test]
fn the_structure_of_properties_is_laid_out_as_each_version_has_it() {
    for (cuda, size, multiprocessors, l2, per_block) in
        [(11, 728, 388, 616, 696), (12, 1032, 388, 616, 696), (13, 1008, 384, 596, 672)]
    {
        let bytes = structure(0, cuda);
        let int = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), size, "CUDA {cuda}");
        assert_eq!(int(360), 9, "compute capability, CUDA {cuda}");
        assert_eq!(int(multiprocessors), 132, "CUDA {cuda}");
        assert_eq!(int(l2), 50 << 20, "CUDA {cuda}");
        assert_eq!(int(per_block), 227 << 10, "CUDA {cuda}");
        assert_eq!(bytes[288..296], 85_029_158_912_u64.to_ne_bytes());
    }
}

/// `properties/h200.json` is what driver 580 said on an H200, number by number. Different here: identities (33, 34, 139, 140), and fabric
/// handles (119, 128), which the stand-in does not have.
#[test]
fn the_h200_preset_says_of_itself_what_the_driver_says_of_an_h200() {
    let said: Value = serde_json::from_str(include_str!("h200.json")).unwrap();
    let gpu = find("h200-141gb").unwrap();
    let own = [33, 34, 119, 128, 139, 140];
    let wrong: Vec<_> = said["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .zip(1..)
        .map(|(value, number)| (number, value.as_i64().unwrap(), i64::from(attribute_of(&gpu, number))))
        .filter(|(number, value, here)| value != here && !own.contains(number))
        .collect();
    assert!(wrong.is_empty(), "number, driver, here: {wrong:?}");
    let limits: Vec<_> = (0..=7).map(|number| limit(&gpu, number)).collect();
    assert_eq!(limits, said["limits"].as_array().unwrap().iter().map(Value::as_u64).collect::<Vec<_>>());
    assert_eq!(said["total"], gpu.total);
}
