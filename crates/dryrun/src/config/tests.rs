use super::read;

fn from(pairs: &[(&str, &str)]) -> Result<super::Config, String> {
    read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
}

#[test]
fn without_variables_it_is_one_h100() {
    let config = from(&[]).unwrap();
    assert_eq!((config.gpu.name, config.devices), ("h100-80gb", 1));
}

#[test]
fn capacity_can_be_overridden_but_not_below_the_context() {
    let config = from(&[("STALLOC_DRYRUN_TOTAL_MIB", "1024"), ("STALLOC_DRYRUN_DEVICES", "8")]).unwrap();
    assert_eq!((config.gpu.total, config.devices), (1 << 30, 8));
    assert!(from(&[("STALLOC_DRYRUN_TOTAL_MIB", "1")]).unwrap_err().contains("does not fit"));
}

#[test]
fn values_that_make_no_sense_are_told() {
    for (name, value) in [
        ("STALLOC_DRYRUN_GPU", "gtx"),
        ("STALLOC_DRYRUN_DEVICES", "0"),
        ("STALLOC_DRYRUN_DEVICES", "17"),
        ("STALLOC_DRYRUN_DEVICES", "two"),
        ("STALLOC_DRYRUN_TOTAL_MIB", "99999999999999999"),
        ("STALLOC_DRYRUN_CONTEXT_MIB", "-1"),
        ("STALLOC_DRYRUN_LATE_EVENTS", "often"),
        ("STALLOC_DRYRUN_AMPLE", "yes"),
        ("STALLOC_DRYRUN_NO_EXPORT", "yes"),
        ("STALLOC_DRYRUN_CUDNN", "none"),
    ] {
        assert!(from(&[(name, value)]).unwrap_err().contains(value), "{name}");
    }
}
